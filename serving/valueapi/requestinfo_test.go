// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestAuthorized: each metric is a right of its own, and so is to watch it, by whichever path.
func TestAuthorized(t *testing.T) {
	resolver := NewRequestInfoResolver(
		&request.RequestInfoFactory{APIPrefixes: sets.NewString("apis", "api"), GrouplessAPIPrefixes: sets.NewString("api")},
		"custom.metrics.k8s.io", "external.metrics.k8s.io")
	const custom, external = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
	tests := map[string]struct {
		method, path string
		// want is the verb, the namespace, the resource and the name, as far as there are any.
		want string
	}{
		"a value":                {path: custom + "/namespaces/a/pods/b/c", want: "get a pods/c b"},
		"all values":             {path: custom + "/namespaces/a/pods/*/c", want: "get a pods/c *"},
		"a resource of a group":  {path: custom + "/namespaces/a/ingresses.networking.k8s.io/b/c", want: "get a ingresses.networking.k8s.io/c b"},
		"no namespace":           {path: custom + "/nodes/b/c", want: "get nodes/c b"},
		"a namespace's own":      {path: custom + "/namespaces/a/metrics/c", want: "get a metrics c"},
		"all namespaces'":        {path: custom + "/namespaces/*/metrics/c", want: "get * metrics c"},
		"watch=true":             {path: custom + "/namespaces/a/pods/*/c?watch=true", want: "watch a pods/c *"},
		"watch=1":                {path: custom + "/namespaces/a/pods/b/c?watch=1", want: "watch a pods/c b"},
		"watch, empty":           {path: custom + "/nodes/b/c?watch=", want: "watch nodes/c b"},
		"watch=false":            {path: custom + "/nodes/b/c?watch=false", want: "get nodes/c b"},
		"watch=0":                {path: custom + "/nodes/b/c?watch=0", want: "get nodes/c b"},
		"watch, and nonsense":    {path: custom + "/nodes/b/c?watch=true&timeoutSeconds=x", want: "watch nodes/c b"},
		"no watch, and that":     {path: custom + "/nodes/b/c?watch=false&timeoutSeconds=x", want: "get nodes/c b"},
		"twice":                  {path: custom + "/nodes/b/c?watch=false&watch=true", want: "get nodes/c b"},
		"a namespace's, watched": {path: custom + "/namespaces/a/metrics/c?watch=true", want: "watch a metrics c"},
		"the prefix":             {path: custom + "/watch/namespaces/a/pods/*/c", want: "watch a pods/c *"},
		"the prefix, of a group": {path: custom + "/watch/namespaces/a/ingresses.networking.k8s.io/b/c", want: "watch a ingresses.networking.k8s.io/c b"},
		"the prefix, of a node":  {path: custom + "/watch/nodes/b/c", want: "watch nodes/c b"},
		"the prefix, and false":  {path: custom + "/watch/namespaces/a/pods/*/c?watch=false", want: "watch a pods/c *"},
		"HEAD":                   {method: http.MethodHead, path: custom + "/nodes/b/c?watch=true", want: "watch nodes/c b"},
		"POST":                   {method: http.MethodPost, path: custom + "/nodes/b/c?watch=true", want: "create nodes/c b"},
		"external":               {path: external + "/namespaces/a/c?watch=true", want: "watch a c"},
		"external, a value":      {path: external + "/namespaces/a/c", want: "list a c"},
		"another group":          {path: "/apis/metrics.k8s.io/v1/nodes/a?watch=true", want: "get nodes a"},
		"discovery":              {path: custom + "?watch=true", want: "get"},
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
			got := strings.Fields(strings.Join([]string{info.Verb, info.Namespace, path.Join(info.Resource, info.Subresource), info.Name}, " "))
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
