// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"testing"

	promlabels "github.com/prometheus/prometheus/model/labels"
	"k8s.io/apimachinery/pkg/labels"
)

// What is requested selects the series that the selector selects in PromQL.
func FuzzMetricRequest(f *testing.F) {
	for _, seed := range []string{
		`depth`, `depth{queue="a"}`, `{"queue/depth", queue!="a", b=""}`, `depth{queue!=""}`, `depth{queue=~"a"}`, `{".."}`, `sum(depth)`,
		`depth{queue="a", queue!="b"}`, `{__name__="a", "b.c/d"="e"}`, `depth{queue="a,b"}`,
	} {
		f.Add(seed, "queue", "a", "b", "")
	}
	f.Fuzz(func(t *testing.T, text, key, value, otherKey, otherValue string) {
		if len(text) > 4096 {
			return
		}
		metric, required, err := MetricRequest(text)
		if err != nil {
			return
		}
		if metric == "" || metric == "." || metric == ".." {
			t.Errorf("%q names the metric %q", text, metric)
		}
		if again, err := labels.Parse(required.String()); err != nil || again.String() != required.String() {
			t.Errorf("%q requires %q, which is %v: %v", text, required, again, err)
		}
		matchers, err := parseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []map[string]string{{}, {key: value}, {key: value, otherKey: otherValue}} {
			for k, v := range of {
				if v == "" { // PromQL has no such label
					delete(of, k)
				}
			}
			selected := true
			for _, m := range matchers {
				selected = selected && (m.Name == promlabels.MetricName || m.Matches(of[m.Name]))
			}
			if _, named := of[promlabels.MetricName]; !named && required.Matches(labels.Set(of)) != selected {
				t.Errorf("%q selects %v: %t, which %q does not", text, of, selected, required)
			}
		}
	})
}
