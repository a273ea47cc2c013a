// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// readyPorts returns the ports that ready pods listen on, sorted.
func (fc *fakeCluster) readyPorts() []int32 {
	fc.t.Helper()
	var ports []int32
	for _, p := range fc.pods() {
		if isReady(&p) && p.DeletionTimestamp == nil {
			ports = append(ports, listensOn(&p))
		}
	}
	slices.Sort(ports)
	return ports
}

// Another port rolls the pods: those of both ports serve meanwhile, each is probed at its
// own, and every version stays registered.
func TestPortChange(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		before, after *int32
		// want are the ports of ready pods, in the order in which they were first seen.
		want [][]int32
	}{
		"a port of the spec is removed": {
			before: ptr.To[int32](10443),
			want:   [][]int32{{10443, 10443}, {10250, 10443, 10443}, {10250, 10443}, {10250, 10250, 10443}, {10250, 10250}},
		},
		"from the default to that of AWS Fargate": {
			after: ptr.To[int32](10251),
			want:  [][]int32{{10250, 10250}, {10250, 10250, 10251}, {10250, 10251}, {10250, 10251, 10251}, {10251, 10251}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Port = tc.before }))
			becomeReady(fc)
			r := fc.reconciler()
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Port = tc.after })
			var seen [][]int32
			fc.reconcileUntil(r, func() bool {
				ports := fc.readyPorts()
				if !slices.ContainsFunc(seen, func(other []int32) bool { return slices.Equal(ports, other) }) {
					seen = append(seen, ports)
				}
				fc.wantRegistered("v1", "v1beta1")
				if c := fc.condition(v1alpha1.ConditionServingReady); c.Reason == v1alpha1.ReasonProbeFailed {
					t.Errorf("with pods at ports %v: %s", ports, c.Message)
				}
				return fc.isReady()
			})
			if diff := cmp.Diff(tc.want, seen); diff != "" {
				t.Errorf("ports of ready pods (-want +got):\n%s", diff)
			}
		})
	}
}
