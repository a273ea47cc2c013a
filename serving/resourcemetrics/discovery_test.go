// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

// TestUnavailable: requests fail with the error, and discovery does not.
func TestUnavailable(t *testing.T) {
	store := listStore()
	server := apiserver.New(t, Scheme, GetOpenAPIDefinitions)
	unavailable := func() error { return apierrors.NewServiceUnavailable("not collected") }
	if _, err := InstallAPI(server, store, newStreams(store), unavailable, enableAll); err != nil {
		t.Fatal(err)
	}
	server.PrepareRun()
	s := httptest.NewServer(server.Handler)
	defer s.Close()
	for path, want := range map[string]int{
		"/apis/metrics.k8s.io/v1":                                   http.StatusOK,
		"/apis/metrics.k8s.io/v1/pods":                              http.StatusServiceUnavailable,
		"/apis/metrics.k8s.io/v1beta1/nodes":                        http.StatusServiceUnavailable,
		"/apis/metrics.k8s.io/v1/nodes?watch=1":                     http.StatusServiceUnavailable,
		"/apis/metrics.k8s.io/v1beta1/nodes/node-a":                 http.StatusServiceUnavailable,
		"/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?limit=1": http.StatusServiceUnavailable,
	} {
		got := get(t, s, path, "")
		if got.code != want || want != http.StatusOK && !strings.Contains(string(got.body), "not collected") {
			t.Errorf("%s: status %d, want %d: %s", path, got.code, want, got.body)
		}
	}
}

func TestGroupVersions(t *testing.T) {
	want := []schema.GroupVersion{metricsv1.SchemeGroupVersion, metricsv1beta1.SchemeGroupVersion}
	if diff := cmp.Diff(want, GroupVersions()); diff != "" {
		t.Errorf("versions by priority (-want +got):\n%s", diff)
	}
}

func TestNoVersionEnabled(t *testing.T) {
	store := newStore()
	group := newAPIGroup(store, newStreams(store), available, func(schema.GroupVersion) bool { return false })
	if got := len(group.PrioritizedVersions) + len(group.VersionedResourcesStorageMap); got != 0 {
		t.Errorf("got %v and %v, want nothing to install", group.PrioritizedVersions, group.VersionedResourcesStorageMap)
	}
}

// TestOpenAPI holds that both documents describe the paths and kinds of every
// version, that nothing refers to a definition that is not there, and that no
// path speaks of a verb that does not exist.
func TestOpenAPI(t *testing.T) {
	server := serve(t, newStore(), enableAll)
	kinds := []string{"ContainerMetrics", "NodeMetrics", "NodeMetricsList", "PodMetrics", "PodMetricsList"}
	paths := []string{
		"/", "/namespaces/{namespace}/pods", "/namespaces/{namespace}/pods/{name}", "/nodes", "/nodes/{name}", "/pods",
		"/watch/namespaces/{namespace}/pods", "/watch/namespaces/{namespace}/pods/{name}", "/watch/nodes", "/watch/nodes/{name}", "/watch/pods",
	}
	definition := func(version, kind string) string { return "io.k8s.metrics.pkg.apis.metrics." + version + "." + kind }

	t.Run("v2", func(t *testing.T) {
		a := get(t, server, "/openapi/v2", "application/json")
		var document spec.Swagger
		decode(t, a, &document)
		for _, version := range []string{"v1", "v1beta1"} {
			for _, kind := range kinds {
				if _, ok := document.Definitions[definition(version, kind)]; !ok {
					t.Errorf("no definition of %s %s", version, kind)
				}
			}
			for _, path := range paths {
				item, ok := document.Paths.Paths["/apis/metrics.k8s.io/"+version+path]
				if !ok || item.Get == nil {
					t.Errorf("no get of %s %s", version, path)
				}
				if item.Post != nil || item.Put != nil || item.Patch != nil || item.Delete != nil {
					t.Errorf("%s %s has more than get", version, path)
				}
			}
		}
		checkRefs(t, a.body, "#/definitions/", slices.Collect(maps.Keys(document.Definitions)))
	})
	for _, version := range []string{"v1", "v1beta1"} {
		t.Run("v3 "+version, func(t *testing.T) {
			a := get(t, server, "/openapi/v3/apis/metrics.k8s.io/"+version, "application/json")
			var document spec3.OpenAPI
			decode(t, a, &document)
			for _, kind := range kinds {
				if _, ok := document.Components.Schemas[definition(version, kind)]; !ok {
					t.Errorf("no schema of %s", kind)
				}
			}
			var got []string
			for path := range document.Paths.Paths {
				got = append(got, strings.TrimPrefix(path, "/apis/metrics.k8s.io/"+version))
			}
			slices.Sort(got)
			if diff := cmp.Diff(paths, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			checkRefs(t, a.body, "#/components/schemas/", slices.Collect(maps.Keys(document.Components.Schemas)))
		})
	}
}

// checkRefs holds that every reference in a document leads somewhere.
func checkRefs(t *testing.T, document []byte, prefix string, defined []string) {
	t.Helper()
	var tree any
	if err := json.Unmarshal(document, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			if ref, ok := node["$ref"].(string); ok && strings.HasPrefix(ref, prefix) && !slices.Contains(defined, strings.TrimPrefix(ref, prefix)) {
				t.Errorf("%s is not defined", ref)
			}
			for _, child := range node {
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(tree)
}

// TestOpenAPIDefinitionsAreClosed holds that the generated definitions need none
// of another package's.
func TestOpenAPIDefinitionsAreClosed(t *testing.T) {
	definitions := GetOpenAPIDefinitions(func(path string) spec.Ref { return spec.MustCreateRef("#/definitions/" + path) })
	for name, definition := range definitions {
		for _, dependency := range definition.Dependencies {
			if _, ok := definitions[dependency]; !ok {
				t.Errorf("%s depends on %s, which is not generated: add its package to the go:generate line", name, dependency)
			}
		}
	}
	var _ common.GetOpenAPIDefinitions = GetOpenAPIDefinitions
}
