// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// TestWatchLimit: a watch is never given longer, and chance takes away a tenth at most.
func TestWatchLimit(t *testing.T) {
	tests := map[string]struct {
		query  string
		limit  time.Duration
		random float64
		want   string
	}{
		"none":              {"watch=true&timeoutSeconds=600", 0, 0, "600"},
		"no time":           {"watch=true", 50 * time.Second, 0, "50"},
		"by chance":         {"watch=true", 50 * time.Second, 0.999, "45"},
		"zero":              {"watch=true&timeoutSeconds=0", 50 * time.Second, 0, "50"},
		"negative":          {"watch=true&timeoutSeconds=-3", 50 * time.Second, 0, "50"},
		"longer":            {"watch=true&timeoutSeconds=51", 50 * time.Second, 0, "50"},
		"shorter":           {"watch=true&timeoutSeconds=7", 50 * time.Second, 0, "7"},
		"nonsense":          {"watch=true&timeoutSeconds=x", 50 * time.Second, 0, "x"},
		"selectors, intact": {"labelSelector=a+in+%28b%2Cc%29&watch=true", 50 * time.Second, 0, "50"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := &endpoint{group: &Group{random: func() float64 { return tc.random }}, route: Route{
				WatchLimit: func(*request.RequestInfo) time.Duration { return tc.limit },
			}}
			req := httptest.NewRequest(http.MethodGet, "/x?"+tc.query, nil)
			before := req.URL.Query()
			got := e.limit(req, &request.RequestInfo{}, req.URL.Query()).URL.Query()
			if got.Get("timeoutSeconds") != tc.want {
				t.Errorf("timeoutSeconds %q, want %q", got.Get("timeoutSeconds"), tc.want)
			}
			got.Del("timeoutSeconds")
			before.Del("timeoutSeconds")
			if diff := cmp.Diff(before, got); diff != "" {
				t.Errorf("the rest (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLengths: what clients write is part of what is kept and asked.
func TestLengths(t *testing.T) {
	fits := "x=" + strings.Repeat("a", MaxParameter-2)
	for name, tc := range map[string]struct {
		query   url.Values
		refused bool
	}{
		"none":                     {nil, false},
		"the longest":              {url.Values{"labelSelector": {fits}, "metricLabelSelector": {fits}}, false},
		"a selector":               {url.Values{"labelSelector": {fits + "a"}}, true},
		"a selector of series":     {url.Values{"metricLabelSelector": {fits + "a"}}, true},
		"a second of the same":     {url.Values{"labelSelector": {"a", fits + "a"}}, true},
		"one that nobody knows of": {url.Values{strings.Repeat("n", 1<<20): {fits + "a"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkLengths(tc.query)
			if tc.refused != apierrors.IsBadRequest(err) || !tc.refused && err != nil {
				t.Fatalf("error %v", err)
			}
			if err != nil && len(err.Error()) > 200 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestOneScopeEach: a document that cannot be made would leave discovery as it was for ever.
func TestOneScopeEach(t *testing.T) {
	all := []metav1.APIResource{
		{Name: "pods/a", Namespaced: true}, {Name: "pods/b", Namespaced: false}, {Name: "nodes/a"}, {Name: "pods/c", Namespaced: true}, {Name: "plain"},
	}
	got := oneScopeEach(all)
	var names []string
	for _, r := range got {
		names = append(names, r.Name)
	}
	if diff := cmp.Diff([]string{"pods/a", "nodes/a", "pods/c", "plain"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if all[1].Name != "pods/b" {
		t.Error("what was given has changed")
	}
}

// TestCachedResources verifies that metrics are converted once while they do not change.
func TestCachedResources(t *testing.T) {
	var metrics []string
	resources := CachedResources(func(int) ([]string, int) { return metrics, 7 },
		func(name *string) metav1.APIResource { return metav1.APIResource{Name: *name} })
	read := func(want ...string) []metav1.APIResource {
		t.Helper()
		got, total := resources(10)
		var names []string
		for _, r := range got {
			names = append(names, r.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" || total != 7 {
			t.Errorf("%d in total, (-want +got):\n%s", total, diff)
		}
		return got
	}
	metrics = []string{"a", "b"}
	first := read("a", "b")
	if again := read("a", "b"); &again[0] != &first[0] {
		t.Error("the same metrics were converted again")
	}
	metrics = []string{"a", "c"}
	if read("a", "c"); first[1].Name != "b" {
		t.Errorf("resources that were returned before changed: %v", first)
	}
	metrics = nil
	read()
}

func TestModelName(t *testing.T) {
	for name, want := range map[string]string{
		"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                  "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
		"io.k8s.metrics.pkg.apis.custom_metrics.v1beta2.MetricValue": "io.k8s.metrics.pkg.apis.custom_metrics.v1beta2.MetricValue",
	} {
		if got := modelName(name); got != want {
			t.Errorf("%s is called %s, want %s", name, got, want)
		}
	}
}
