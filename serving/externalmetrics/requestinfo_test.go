// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

func testResolver() request.RequestInfoResolver {
	stock := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return NewRequestInfoResolver(valueapi.NewRequestInfoResolver(stock, GroupName))
}

func TestRequestInfo(t *testing.T) {
	const root = "/apis/external.metrics.k8s.io/v1beta1"
	of := func(verb, resource string) *request.RequestInfo {
		return &request.RequestInfo{
			IsResourceRequest: true, Verb: verb, APIPrefix: "apis", APIGroup: GroupName, APIVersion: "v1beta1", Namespace: "shop",
			Resource: resource, Parts: []string{resource},
		}
	}
	everywhere, statusEverywhere := of("list", "orders"), of("list", "status")
	everywhere.Namespace, statusEverywhere.Namespace = "*", "*"
	selecting := of("list", "status")
	selecting.LabelSelector = "a=b"
	tests := map[string]struct {
		method, path, query string
		want                *request.RequestInfo
	}{
		"a metric":             {path: root + "/namespaces/shop/orders", want: of("list", "orders")},
		"all namespaces":       {path: root + "/namespaces/*/orders", want: everywhere},
		"status of all":        {path: root + "/namespaces/*/status", want: statusEverywhere},
		"a name with a slash":  {path: root + `/namespaces/shop/cloud\|queue`, want: of("list", `cloud\|queue`)},
		"status":               {path: root + "/namespaces/shop/status", want: of("list", "status")},
		"finalize":             {path: root + "/namespaces/shop/finalize", want: of("list", "finalize")},
		"status with a slash":  {path: root + "/namespaces/shop/status/", want: of("list", "status")},
		"status, selected":     {path: root + "/namespaces/shop/status", query: "labelSelector=a%3Db", want: selecting},
		"status, watched":      {path: root + "/namespaces/shop/status", query: "watch=true", want: of("watch", "status")},
		"status, not watched":  {path: root + "/namespaces/shop/status", query: "watch=false", want: of("list", "status")},
		"status, deleted":      {method: http.MethodDelete, path: root + "/namespaces/shop/status", want: of("deletecollection", "status")},
		"status, posted":       {method: http.MethodPost, path: root + "/namespaces/shop/status", want: of("create", "status")},
		"a namespace in core":  {path: "/api/v1/namespaces/shop/status", want: nil},
		"a namespace's own":    {path: root + "/namespaces/shop", want: nil},
		"a path of more parts": {path: root + "/namespaces/shop/status/more", want: nil},
		"discovery":            {path: root, want: nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			req := &http.Request{Method: method, URL: &url.URL{Path: tc.path, RawQuery: tc.query}}
			got, err := testResolver().NewRequestInfo(req)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == nil {
				if got.IsResourceRequest && got.Resource != "namespaces" {
					t.Errorf("taken for the metric %q", got.Resource)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(request.RequestInfo{}, "Path")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRequestInfo: whatever the path, what is authorized is what would be read, and a
// name survives its escaping.
func FuzzRequestInfo(f *testing.F) {
	for _, seed := range []string{"orders", "status", "finalize", `cloud\|queue`, "a/b", "", "*", "namespaces", `\|`, "\x00", "watch", "..", "proxy"} {
		f.Add(seed, "watch=true")
	}
	f.Fuzz(func(t *testing.T, metric, parameters string) {
		req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/" + metric, RawQuery: parameters}}
		info, err := testResolver().NewRequestInfo(req)
		if err != nil {
			return
		}
		// The one route has a namespace and one segment more, as go-restful reads it.
		if segment := strings.Trim(metric, "/"); segment != "" && !strings.Contains(segment, "/") {
			if info.Resource != segment || info.Namespace != "shop" || info.Name != "" || info.Subresource != "" {
				t.Errorf("%q is authorized as %+v", metric, info)
			}
			if info.Verb != "list" && info.Verb != "watch" {
				t.Errorf("%q is authorized to %s", metric, info.Verb)
			}
		}
		if parsed, err := (&reader{metrics: fakeMetrics{}}).parse(info, nil); err == nil && parsed.(*metricRequest).metric != query.UnescapeName(info.Resource) {
			t.Errorf("%q is read as %q", metric, parsed.(*metricRequest).metric)
		}
		if !strings.Contains(metric, query.EscapedSlash) && query.UnescapeName(query.EscapeName(metric)) != metric {
			t.Errorf("%q does not survive its escaping", metric)
		}
	})
}
