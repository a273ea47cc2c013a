// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// FuzzRequest: whatever a client writes, the whole API server answers it, and never with
// an error of its own. A panic is such an error, too: the API server makes 500 of it.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ path, labelSelector, metricLabelSelector, accept, rest string }{
		{"namespaces/shop/pods/web-1/hits", "", "", "", ""},
		{"namespaces/shop/pods/*/hits", "app=web", "", "application/json", "limit=1"},
		{"namespaces/shop/pods/*/hits", "app in (web,db),!team", "code in (200,500),!x", "application/yaml", "resourceVersion=0&resourceVersionMatch=Exact"},
		{"namespaces/shop/pods/%2A/hits", "app in (", "code>2", "application/json;as=Table;g=meta.k8s.io;v=v1", "includeObject=Object"},
		{"namespaces/shop/pods/*/hits", "==", "=,=", "application/json;as=Table;v=v1;g=meta.k8s.io,*/*", "includeObject=None"},
		{"namespaces/shop/ingresses.extensions/front/hits", "", "", "application/cbor", "pretty=true"},
		{"nodes/*/load", "zone", "\x00=\xff", "application/vnd.kubernetes.protobuf", "fieldSelector=a%3Db"},
		{"namespaces/*/metrics/queue-length", "team notin (a)", "", "*/*", "continue=x"},
		{"namespaces/shop/metrics/queue-length", "team=a", "", "text/html", "explain=true"},
		{"namespaces/shop/pods/*/hits", "app=web", "", "", "explain=true"},
		{"namespaces/shop/pods/*/hits", "app=web", "", "application/json;stream=watch", "watch=true&timeoutSeconds=1"},
		{"watch/namespaces/shop/pods/*/hits", "", "code=200", "application/cbor-seq", "allowWatchBookmarks=true&timeoutSeconds=-1"},
		{"watch/nodes/node-a/load", "", "", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "sendInitialEvents=true"},
		{"namespaces/shop/pods/*/hits", "a=b", "", "", "watch=maybe&timeoutSeconds=x&explain=perhaps"},
		{"namespaces/shop/pods./a%2Fb/..", ",", ",", ";;;=", "%zz&&="},
		{"", "", "", "", ""},
	} {
		f.Add(seed.path, seed.labelSelector, seed.metricLabelSelector, seed.accept, seed.rest)
	}
	handler := start(f, newWorld()).generic.Handler
	f.Fuzz(func(t *testing.T, path, labelSelector, metricLabelSelector, accept, rest string) {
		query := url.Values{}
		if labelSelector != "" {
			query.Set("labelSelector", labelSelector)
		}
		if metricLabelSelector != "" {
			query.Set("metricLabelSelector", metricLabelSelector)
		}
		target := root("v1beta2") + "/" + path + "?" + query.Encode() + "&" + rest
		got, sent := apiserver.Get(t.Context(), handler, target, accept)
		if sent && got.Code == http.StatusInternalServerError {
			t.Errorf("GET %s, accepting %q: %d %s", target, accept, got.Code, got.Body)
		}
	})
}
