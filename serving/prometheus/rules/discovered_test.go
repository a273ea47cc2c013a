// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

// TestSetFoundUnchanged: the state of all rules is not computed again for what is known already,
// failures included: with a thousand rules that takes seconds after each change of the spec.
func TestSetFoundUnchanged(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: `hits{pod!=""}`, Resources: v1alpha1.RuleResources{Template: "<<.Resource>>"}}}, nil))
	s := c.Selections()[0]
	found := series.Found{Time: time.Unix(1, 0), Series: []series.Series{{Name: "hits", Labels: []string{"namespace", "pod"}, Count: 1}}}
	// computed reports whether the state was computed again: then there are new lists.
	computed := func(f series.Found) bool {
		before, _ := c.lists(10)
		c.SetFound(s, f)
		after, _ := c.lists(10)
		return before != after
	}
	for i, step := range []struct {
		err           error
		computed, bad bool
	}{
		{nil, true, false}, {nil, false, false}, {errors.New("away"), true, true}, {errors.New("away"), false, true},
		{errors.New("slow"), true, true}, {nil, true, false},
	} {
		found.Err = step.err
		if got := computed(found); got != step.computed {
			t.Errorf("step %d: computed again: %t", i, got)
		}
		if bad := len(c.Health().Rules) > 0; bad != step.bad {
			t.Errorf("step %d: health %+v", i, c.Health())
		}
		if custom, _ := c.ObjectMetrics(10); len(custom) == 0 {
			t.Errorf("step %d: the metrics are gone", i)
		}
	}
}
