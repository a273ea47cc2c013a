// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samples

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// serve returns a cluster that answers these paths.
func serve(t *testing.T, bodies map[string]string) *connection.Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, ok := bodies[r.RequestURI]; ok {
			_, _ = w.Write([]byte(body))
		} else {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	cluster, err := connection.ForConfig(&rest.Config{Host: server.URL}, t.Output(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

const nodes = "/apis/metrics.k8s.io/v1/nodes?limit=500"

func TestNodesInPages(t *testing.T) {
	cluster := serve(t, map[string]string{
		nodes: `{"metadata":{"continue":"a/b="},"items":[{"metadata":{"name":"a"},"timestamp":"2026-11-21T12:00:00Z","usage":{"cpu":"1"}}]}`,
		"/apis/metrics.k8s.io/v1/nodes?continue=a%2Fb%3D&limit=500": `{"metadata":{},"items":[{"metadata":{"name":"b"},"timestamp":"2026-11-21T12:00:05Z","usage":{"cpu":"1000m"}}]}`,
	})
	got, err := Read(t.Context(), cluster, "v1", "nodes")
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	want := Samples{
		"a": {Time: noon, Usage: map[string]resource.Quantity{"cpu": resource.MustParse("1")}},
		"b": {Time: noon.Add(5 * time.Second), Usage: map[string]resource.Quantity{"cpu": resource.MustParse("1")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if newest := got.Newest(); !newest.Equal(noon.Add(5 * time.Second)) {
		t.Errorf("the newest is from %s", newest)
	}
	if n := got.Since(noon.Add(time.Second)); n != 1 {
		t.Errorf("%d are younger than noon", n)
	}
}

// Pods tell the usage of each container; all pages are read.
func TestPods(t *testing.T) {
	cluster := serve(t, map[string]string{"/apis/metrics.k8s.io/v1beta1/pods?limit=500": `{"metadata":{"continue":"more"},"items":[]}`,
		"/apis/metrics.k8s.io/v1beta1/pods?continue=more&limit=500": `{"items":[{"metadata":{"namespace":"n","name":"p"},` +
			`"timestamp":"2026-11-21T12:00:00Z","containers":[{"name":"x","usage":{"cpu":"1m"}},{"name":"y","usage":{"cpu":"2m"}}]}]}`})
	got, err := Read(t.Context(), cluster, "v1beta1", "pods")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]resource.Quantity{"x/cpu": resource.MustParse("1m"), "y/cpu": resource.MustParse("2m")}
	if diff := cmp.Diff(want, got["n/p"].Usage); diff != "" {
		t.Error(diff)
	}
}

func TestForeignBytes(t *testing.T) {
	for name, body := range map[string]string{"no JSON": "<html>", "not a list": `{"items":7}`, "no time": `{"items":[{"timestamp":"noon"}]}`} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(t.Context(), serve(t, map[string]string{nodes: body}), "v1", "nodes")
			if err == nil || !strings.HasPrefix(err.Error(), "GET "+nodes+": decode the answer: ") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Read(t.Context(), serve(t, nil), "v1", "nodes"); err == nil {
		t.Error("an error of the request is lost")
	}
}
