// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/metrics/pkg/apis/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

var resolver = valueapi.NewRequestInfoResolver(
	&request.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")}, custom_metrics.GroupName)

// FuzzParse: whatever the path, what is answered about is what was authorized, and fit
// to be put into queries.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"namespaces/shop/pods/web-1/hits", "namespaces/shop/pods/*/hits", "nodes/*/load", "namespaces/shop/metrics/queue",
		"namespaces/*/metrics/queue", "watch/namespaces/shop/metrics/queue", "watch/nodes/a/load", "namespaces/shop/status",
		"namespaces/shop/finalize", "namespaces//pods//hits", "proxy/nodes/a", "namespaces/shop/status/a/b", "namespaces/..",
		"ingresses.networking.k8s.io/../hits", "namespaces/shop/pods/%2A/a%2Fb", "a/b/c?watch=true", "namespaces/a/metrics/metrics/b",
		"./a/b", "pods./a/b",
	} {
		f.Add(seed, "code=200")
		f.Add(seed, "a in (b")
	}
	f.Fuzz(func(t *testing.T, segments, selector string) {
		u := &url.URL{Path: root("v1beta2") + "/" + segments}
		info, err := resolver.NewRequestInfo(&http.Request{Method: http.MethodGet, URL: u})
		if err != nil || !info.IsResourceRequest {
			return
		}
		got, err := parse(info, url.Values{metricLabelSelector: {selector}})
		if err != nil {
			return
		}
		for _, segment := range []string{got.metric, got.name, got.namespace} {
			if len(content.IsPathSegmentName(segment)) > 0 || strings.Contains(got.metric, "?") {
				t.Errorf("%q has the segment %q", segments, segment)
			}
		}
		if got.metric == "" || got.name == "" || got.resource.Resource == "" {
			t.Errorf("%q has an empty part: %+v", segments, got)
		}
		if got.resource == namespaces {
			if info.Resource != metricsResource || info.Namespace != got.name || info.Name != got.metric || got.namespace != "" {
				t.Errorf("%q: authorized %+v, answered %+v", segments, info, got)
			}
			return
		}
		if info.Resource != got.resource.String() {
			t.Errorf("%q: authorized for the resource %q, answered about %q", segments, info.Resource, got.resource)
		}
		if info.Namespace != got.namespace || info.Name != got.name || info.Subresource != got.metric {
			t.Errorf("%q: authorized %+v, answered %+v", segments, info, got)
		}
	})
}
