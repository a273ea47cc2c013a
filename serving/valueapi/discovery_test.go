// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
)

// TestAdvertiseAgain: what could not be told is tried again, and until then discovery
// goes by what it told last.
func TestAdvertiseAgain(t *testing.T) {
	listed := []metav1.APIResource{{Name: "pods/a", Namespaced: true}}
	g := &Group{
		api: API{
			Versions:  []schema.GroupVersion{{Group: "test.metrics.k8s.io", Version: "v1"}},
			Resources: func(int) ([]metav1.APIResource, int) { return listed, len(listed) },
			NoMetrics: metav1.APIResource{Name: "none", Namespaced: true},
		},
		aggregated: aggregated.NewResourceManager("apis"),
	}
	g.resources.Store(&[]metav1.APIResource{})
	// tell is what happens every few seconds.
	tell := func() (changed bool) {
		next, changed := g.nextDocument()
		if changed {
			g.advertiseOrLog(klog.Background(), next)
		}
		return changed
	}
	told := func(want ...string) {
		t.Helper()
		var names []string
		for _, r := range *g.resources.Load() {
			names = append(names, r.Name+" "+r.Verbs.String())
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("discovery tells of (-want +got):\n%s", diff)
		}
	}
	if !tell() || tell() {
		t.Error("the first metrics are not told once")
	}
	told("pods/a [get]")

	listed = []metav1.APIResource{{Name: "pods/a", Namespaced: true}, {Name: "pods/b", Namespaced: true}}
	next, changed := g.nextDocument()
	if !changed {
		t.Fatal("a new metric is no change")
	}
	// No document can be made of this, whatever left it in.
	next.resources = append(next.resources, metav1.APIResource{Name: "pods/c"})
	for range 2 {
		g.advertiseOrLog(klog.Background(), next)
		told("pods/a [get]")
	}

	g.watchable = true
	g.advertiseOrLog(klog.Background(), g.current)
	told("pods/a [get watch]")
	if !tell() || tell() {
		t.Error("what could not be told is not tried again, or for ever")
	}
	told("pods/a [get watch]", "pods/b [get watch]")

	// What is listed without metrics is none.
	MetricSet.Register(metrics.NewKubeRegistry().MustRegister)
	listed = nil
	if !tell() || tell() {
		t.Error("that there are no metrics is not told once")
	}
	told("none [get watch]")
	if n, err := testutil.GetGaugeMetricValue(discovered.WithLabelValues("test.metrics.k8s.io")); n != 0 || err != nil {
		t.Errorf("%g metrics are counted, error %v", n, err)
	}
}
