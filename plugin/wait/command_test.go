// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

func TestParseGoal(t *testing.T) {
	cases := map[string]struct {
		want  goal
		error string
	}{
		"ready":                            {want: goal{condition: "Ready", status: metav1.ConditionTrue}},
		"Ready":                            {want: goal{condition: "Ready", status: metav1.ConditionTrue}},
		"condition=Available":              {want: goal{condition: "Available", status: metav1.ConditionTrue}},
		"condition=Stalled=false":          {want: goal{condition: "Stalled", status: metav1.ConditionFalse}},
		"source=keda":                      {want: goal{source: "keda"}},
		"source=":                          {error: `--for "source=": must be ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=VERSION,VERSION`},
		"released=external.metrics.k8s.io": {want: goal{group: "external.metrics.k8s.io", released: true}},
		"released=apps":                    {error: `--for "released=apps": must be ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=VERSION,VERSION`},
		"versions=v1beta1,v1":              {want: goal{group: "metrics.k8s.io", versions: []string{"v1", "v1beta1"}}},
		"versions=v1.metrics.k8s.io":       {want: goal{group: "metrics.k8s.io", versions: []string{"v1"}}},
		"versions=none":                    {want: goal{group: "metrics.k8s.io"}},
		"versions=v1beta1.custom.metrics.k8s.io, v1beta2.custom.metrics.k8s.io": {want: goal{group: "custom.metrics.k8s.io", versions: []string{"v1beta2", "v1beta1"}}},
		"versions=none.external.metrics.k8s.io":                                 {want: goal{group: "external.metrics.k8s.io"}},
		"versions=none,v1":                                                      {error: `--for "versions=none,v1": "none" is no version; write versions=v1,v1beta1, or versions=none`},
		"versions=v1.apps":                                                      {error: `--for "versions=v1.apps": "apps" is no group of metrics; there are metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io`},
		"versions=v1,v1beta1.external.metrics.k8s.io":                           {error: `--for "versions=v1,v1beta1.external.metrics.k8s.io": wait for the versions of metrics.k8s.io and of external.metrics.k8s.io one after the other`},
		"versions=":                    {error: `--for "versions=": "" is no version; write versions=v1,v1beta1, or versions=none`},
		"versions=1":                   {error: `--for "versions=1": "1" is no version; write versions=v1,v1beta1, or versions=none`},
		"condition=":                   {error: `--for "condition=": must be ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=VERSION,VERSION`},
		"condition=Available=probably": {error: `--for "condition=Available=probably": must be ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=VERSION,VERSION`},
		"delete":                       {error: `--for "delete": must be ready, condition=NAME, condition=NAME=STATUS, source=NAME, released=GROUP or versions=VERSION,VERSION`},
	}
	for text, tc := range cases {
		t.Run(text, func(t *testing.T) {
			got, err := parseGoal(text)
			if message := errorText(err); message != tc.error {
				t.Fatalf("error %q, want %q", message, tc.error)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(goal{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestChoose(t *testing.T) {
	ready := goal{condition: "Ready", status: metav1.ConditionTrue}
	versions := goal{versions: []string{"v1"}}
	two := []v1alpha1.MetricsBackend{*plugincluster.Backend("cluster"), *plugincluster.Backend("other")}
	cases := map[string]struct {
		backends []v1alpha1.MetricsBackend
		args     []string
		goal     goal
		want     string
		error    string
	}{
		"the only one":         {backends: two[:1], goal: ready, want: "cluster"},
		"named":                {backends: two, args: []string{"other"}, goal: ready, want: "other"},
		"one of two":           {backends: two, goal: ready, error: "name one of the MetricsBackends: cluster, other"},
		"versions of two":      {backends: two, goal: versions},
		"none":                 {goal: ready, error: "there is no MetricsBackend"},
		"versions without":     {goal: versions},
		"unknown":              {backends: two, args: []string{"x"}, goal: ready, error: `MetricsBackend "x" not found; there are: cluster, other`},
		"named, there is none": {args: []string{"x"}, goal: versions, error: `MetricsBackend "x" not found: there is none`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(nil)
			world.Backends = tc.backends
			got, err := choose(t.Context(), plugincluster.Start(t, world).Connection, tc.args, tc.goal)
			if got != tc.want || errorText(err) != tc.error {
				t.Errorf("got %q, %v, want %q, %s", got, err, tc.want, tc.error)
			}
		})
	}
}
