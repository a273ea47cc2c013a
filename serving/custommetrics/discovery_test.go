// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
)

var everyResource = []string{
	"ingresses.networking.k8s.io/hits true MetricValueList [get watch]",
	"namespaces/queue-length false MetricValueList [get watch]",
	"nodes/load false MetricValueList [get watch]",
	"pods/hits true MetricValueList [get watch]",
	"pods/http.requests:rate5m true MetricValueList [get watch]",
}

func describe(resources []metav1.APIResource) []string {
	var lines []string
	for _, r := range resources {
		lines = append(lines, fmt.Sprint(r.Name, " ", r.Namespaced, " ", r.Kind, " ", r.Verbs))
	}
	return lines
}

// TestDiscovery reads both documents with the stock client, which prefers the
// aggregated one.
func TestDiscovery(t *testing.T) {
	server := serve(t, newWorld())
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		t.Run(name, func(t *testing.T) {
			client := discovery.NewDiscoveryClientForConfigOrDie(&restclient.Config{Host: server.URL})
			client.UseLegacyDiscovery = legacy
			groups, resources, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			if len(groups) != 1 {
				t.Fatalf("groups %v", groups)
			}
			var versions []string
			for _, v := range groups[0].Versions {
				versions = append(versions, v.Version)
			}
			if diff := cmp.Diff([]string{"v1beta2", "v1beta1"}, versions); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
			if got := groups[0].PreferredVersion.Version; got != "v1beta2" {
				t.Errorf("the preferred version is %s", got)
			}
			if len(resources) != 2 {
				t.Fatalf("resources of %d versions", len(resources))
			}
			for _, list := range resources {
				got := describe(list.APIResources)
				slices.Sort(got)
				// Resources that have nothing but subresources are told of without a kind.
				got = slices.DeleteFunc(got, func(line string) bool { return !strings.Contains(line, "/") })
				if diff := cmp.Diff(everyResource, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", list.GroupVersion, diff)
				}
			}
		})
	}
}

// TestDiscoveryFollowsMetrics within seconds, and tells of a bounded number.
func TestDiscoveryFollowsMetrics(t *testing.T) {
	w := newWorld()
	bubble(t, w, func(t *testing.T, s *served) {
		names := func() []string { return s.resources(t, "v1beta1") }
		etag := func() string { return s.do(t, http.MethodGet, "/apis", aggregatedDiscovery).header.Get("ETag") }
		first := etag()
		time.Sleep(time.Minute)
		if again := etag(); again != first || first == "" {
			t.Errorf("discovery has changed, from %q to %q, although no metric has", first, again)
		}
		w.mu.Lock()
		delete(w.metrics, "nodes/load")
		w.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff(slices.Delete(slices.Clone(everyResource), 2, 3), names()); diff != "" {
			t.Errorf("after a metric has gone (-want +got):\n%s", diff)
		}
		if etag() == first {
			t.Error("aggregated discovery has not followed")
		}
		w.mu.Lock()
		for i := range valueapi.MaxDiscovered {
			w.metric("pods", podKind, true, fmt.Sprintf("m%05d", i))
		}
		w.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := names(); len(got) != valueapi.MaxDiscovered {
			t.Errorf("discovery tells of %d metrics, want no more than %d", len(got), valueapi.MaxDiscovered)
		}
		// It can be read all the same.
		w.sample(fmt.Sprintf("pods/m%05d", valueapi.MaxDiscovered-1), "web-1", 1, 0)
		path := fmt.Sprintf("%s/namespaces/shop/pods/*/m%05d", root("v1beta2"), valueapi.MaxDiscovered-1)
		if got := s.do(t, http.MethodGet, path, ""); got.code != http.StatusOK {
			t.Errorf("a metric that discovery does not tell of: %d %s", got.code, got.body)
		}
	})
}

// TestDiscoveryWithoutMetrics: each version has a resource that nothing deletes, lists or counts, until there is a metric.
func TestDiscoveryWithoutMetrics(t *testing.T) {
	w := newWorld()
	clear(w.metrics)
	if found := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete"}}, apiserver.RequireCached(t, serve(t, w).URL)); len(found) > 0 {
		t.Errorf("controllers would delete %v", found)
	}
	bubble(t, w, func(t *testing.T, s *served) {
		const path = "/namespaces/*/metrics/" + v1alpha1.NoMetrics
		for _, version := range []string{"v1beta1", "v1beta2"} {
			if diff := cmp.Diff([]string{"namespaces/no-metrics false MetricValueList [get watch]"}, s.resources(t, version)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", version, diff)
			}
			for _, path := range []string{path, "/namespaces/shop/metrics/" + v1alpha1.NoMetrics} {
				got := s.do(t, http.MethodGet, root(version)+path, "")
				if want := `{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/` + version + `","metadata":{},"items":[]}`; got.code != http.StatusOK || strings.TrimSpace(string(got.body)) != want {
					t.Errorf("%s of %s: %d %s", path, version, got.code, got.body)
				}
			}
		}
		s.watch(t, root("v1beta2")+path+"?watch=true&timeoutSeconds=20&allowWatchBookmarks=true").expect("BOOKMARK at 18s", "EOF at 20s")
		w.mu.Lock()
		w.metric("nodes", nodeKind, false, "load")
		w.mu.Unlock()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"nodes/load false MetricValueList [get watch]"}, s.resources(t, "v1beta2")); diff != "" {
			t.Errorf("with a metric (-want +got):\n%s", diff)
		}
	})
}

// resources returns the resources in discovery of a version.
func (s *served) resources(t *testing.T, version string) []string {
	t.Helper()
	var list metav1.APIResourceList
	if err := json.Unmarshal(s.do(t, http.MethodGet, root(version), "").body, &list); err != nil {
		t.Fatal(err)
	}
	return describe(list.APIResources)
}

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// TestNoVersion: where --runtime-config leaves no version, nothing is served.
func TestNoVersion(t *testing.T) {
	server := serve(t, newWorld(), func(_ *serverConfig, o *Options) { o.Enabled = func(schema.GroupVersion) bool { return false } })
	if got := server.do(t, http.MethodGet, root("v1beta1")+webPods, ""); server.group != nil || got.code != http.StatusNotFound {
		t.Errorf("group %v, %d", server.group, got.code)
	}
}

// TestOpenAPI has the paths of the proposal, however many metrics there are, and what
// they answer.
func TestOpenAPI(t *testing.T) {
	server := serve(t, newWorld())
	want := func(prefix string) []string {
		var paths []string
		for _, p := range []string{
			"/", "/namespaces/{namespace}/metrics/{metric}", "/namespaces/{namespace}/{resource}/{name}/{metric}",
			"/watch/namespaces/{namespace}/metrics/{metric}", "/watch/namespaces/{namespace}/{resource}/{name}/{metric}",
			"/watch/{resource}/{name}/{metric}", "/{resource}/{name}/{metric}",
		} {
			paths = append(paths, prefix+p)
		}
		return paths
	}
	check := func(name string, body []byte, prefix string) {
		t.Helper()
		var document struct {
			Paths map[string]struct {
				Get *struct {
					OperationID string          `json:"operationId"`
					Responses   json.RawMessage `json:"responses"`
				} `json:"get"`
			} `json:"paths"`
		}
		if err := json.Unmarshal(body, &document); err != nil {
			t.Fatalf("%s: %v: %.200s", name, err, body)
		}
		var paths []string
		operations := map[string]bool{}
		for p, item := range document.Paths {
			if strings.HasPrefix(p, prefix+"/") {
				paths = append(paths, p)
				if item.Get == nil || item.Get.OperationID == "" || operations[item.Get.OperationID] {
					t.Errorf("%s: %s has no GET with an operation of its own", name, p)
					continue
				}
				operations[item.Get.OperationID] = true
				answer, other := "MetricValueList", "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent"
				if strings.HasPrefix(p, prefix+"/watch/") {
					answer, other = other, answer
				}
				if got := string(item.Get.Responses); p != prefix+"/" && (!strings.Contains(got, answer) || strings.Contains(got, other)) {
					t.Errorf("%s: %s answers %s, want %s", name, p, got, answer)
				}
			}
		}
		slices.Sort(paths)
		if diff := cmp.Diff(want(prefix), paths); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for _, definition := range []string{"MetricValueList", "io.k8s.api.core.v1.ObjectReference", "io.k8s.apimachinery.pkg.api.resource.Quantity"} {
			if !strings.Contains(string(body), definition) {
				t.Errorf("%s does not define %s", name, definition)
			}
		}
	}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		check("v2 of "+version, server.do(t, http.MethodGet, "/openapi/v2", "").body, root(version))
		check("v3 of "+version, server.do(t, http.MethodGet, "/openapi/v3"+root(version), "").body, root(version))
	}
}
