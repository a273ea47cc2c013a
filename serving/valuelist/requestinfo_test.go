// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuelist

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestVerbs: a watch is authorized as one wherever it is asked for.
func TestVerbs(t *testing.T) {
	resolver := NewRequestInfoResolver(
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")},
		"custom.metrics.k8s.io", "external.metrics.k8s.io")
	const custom, external = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
	tests := map[string]struct{ method, path, want string }{
		"a value":               {path: custom + "/namespaces/a/pods/b/c", want: "get"},
		"all values":            {path: custom + "/namespaces/a/pods/*/c", want: "get"},
		"watch=true":            {path: custom + "/namespaces/a/pods/*/c?watch=true", want: "watch"},
		"watch=1":               {path: custom + "/namespaces/a/pods/b/c?watch=1", want: "watch"},
		"watch, empty":          {path: custom + "/nodes/b/c?watch=", want: "watch"},
		"watch=false":           {path: custom + "/nodes/b/c?watch=false", want: "get"},
		"watch=0":               {path: custom + "/nodes/b/c?watch=0", want: "get"},
		"watch, and nonsense":   {path: custom + "/nodes/b/c?watch=true&timeoutSeconds=x", want: "watch"},
		"no watch, and that":    {path: custom + "/nodes/b/c?watch=false&timeoutSeconds=x", want: "get"},
		"twice":                 {path: custom + "/nodes/b/c?watch=false&watch=true", want: "get"},
		"a namespace's":         {path: custom + "/namespaces/a/metrics/c?watch=true", want: "watch"},
		"the prefix":            {path: custom + "/watch/namespaces/a/pods/*/c", want: "watch"},
		"the prefix, and false": {path: custom + "/watch/namespaces/a/pods/*/c?watch=false", want: "watch"},
		"HEAD":                  {method: http.MethodHead, path: custom + "/nodes/b/c?watch=true", want: "watch"},
		"POST":                  {method: http.MethodPost, path: custom + "/nodes/b/c?watch=true", want: "create"},
		"external":              {path: external + "/namespaces/a/c?watch=true", want: "watch"},
		"external, a value":     {path: external + "/namespaces/a/c", want: "list"},
		"another group":         {path: "/apis/metrics.k8s.io/v1/nodes/a?watch=true", want: "get"},
		"discovery":             {path: custom + "?watch=true", want: "get"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			info, err := resolver.NewRequestInfo(httptest.NewRequest(tc.method, tc.path, nil))
			if err != nil {
				t.Fatal(err)
			}
			if info.Verb != tc.want {
				t.Errorf("verb %q, want %q", info.Verb, tc.want)
			}
		})
	}
}
