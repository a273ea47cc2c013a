// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// FuzzRequest: whatever a client writes, the whole API server answers it, and never with
// an error of its own. A panic is such an error, too: the API server makes 500 of it.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ path, labelSelector, accept, rest string }{
		{"namespaces/shop/queue_length", "", "", ""},
		{"namespaces/shop/queue_length", "queue=b,region in (eu,us)", "application/json", "limit=1"},
		{"namespaces/shop/queue_length", "!team,queue!=a", "application/yaml", "resourceVersion=0&resourceVersionMatch=Exact"},
		{"namespaces/shop/queue_length", "queue in (", "application/cbor", "pretty=true"},
		{"namespaces/shop/queue_length", "queue>1", "application/json;as=Table;g=meta.k8s.io;v=v1", "includeObject=Object"},
		{"namespaces/shop/queue_length", "==", "application/json;as=Table;v=v1;g=meta.k8s.io,*/*", "includeObject=None"},
		{"namespaces/shop/queue_length", "\x00=\xff", "application/vnd.kubernetes.protobuf", "fieldSelector=a%3Db"},
		{"namespaces/shop/queue_length", "region=us", "text/html", "explain=true"},
		{"namespaces/shop/queue_length", "region=us", "", "explain=true"},
		{"namespaces/shop/queue_length", "", "application/json;stream=watch", "watch=true&timeoutSeconds=1"},
		{"namespaces/shop/status", "", "application/cbor-seq", "watch=1&allowWatchBookmarks=true&timeoutSeconds=-1"},
		{"namespaces/shop/queue_length", "a", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "watch=true&sendInitialEvents=true"},
		{"namespaces/shop/queue_length", ",", ";;;=", "watch=maybe&timeoutSeconds=x&explain=perhaps&%zz&&="},
		{"namespaces/shop/orders", "", "*/*", ""},
		{"namespaces/shop/cloud%5C%7Cqueue", "", "", "continue=x"},
		{"namespaces/*/queue_length/..", "", "", ""},
		{"", "", "", ""},
	} {
		f.Add(seed.path, seed.labelSelector, seed.accept, seed.rest)
	}
	w := newWorld(f)
	w.add("orders", sample(1, nil))
	w.add("status", sample(2, labels.Set{"queue": "a"}))
	w.add("cloud/queue", sample(3, nil))
	w.apply(policy.Compile([]v1alpha1.ExternalMetricsPolicy{denying("no-orders", "orders", "admin")}))
	handler := w.handler
	f.Fuzz(func(t *testing.T, path, labelSelector, accept, rest string) {
		query := url.Values{}
		if labelSelector != "" {
			query.Set("labelSelector", labelSelector)
		}
		target := "/apis/external.metrics.k8s.io/v1beta1/" + path + "?" + query.Encode() + "&" + rest
		got, sent := apiserver.Get(t.Context(), handler, target, accept)
		if sent && got.Code == http.StatusInternalServerError {
			t.Errorf("GET %s, accepting %q: %d %s", target, accept, got.Code, got.Body)
		}
	})
}
