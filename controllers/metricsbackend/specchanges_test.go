// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Only managers that change the spec back in turn are named.
func TestSpecChanges(t *testing.T) {
	t.Parallel()
	type change struct {
		after    time.Duration
		manager  string
		replicas int32
	}
	const hour, second = time.Hour, time.Second
	cases := map[string]struct {
		changes []change
		want    []string
	}{
		"two in turn": {
			changes: []change{{0, "a", 2}, {hour, "b", 3}, {second, "a", 2}, {hour, "b", 3}, {second, "a", 2}, {hour, "b", 3}},
			want:    []string{"a", "b"},
		},
		// managedFields have seconds.
		"in turn within a second": {
			changes: []change{{0, "a", 2}, {0, "b", 3}, {second, "a", 2}, {0, "b", 3}, {second, "a", 2}, {0, "b", 3}},
			want:    []string{"a", "b"},
		},
		// A slow operator sees only what one of them applied.
		"every second change is seen": {
			changes: []change{{0, "a", 2}, {0, "b", 0}, {second, "a", 2}, {0, "b", 0}, {second, "a", 2}, {0, "b", 0}, {second, "a", 2}},
			want:    []string{"a", "b"},
		},
		"once":            {changes: []change{{0, "a", 2}, {second, "b", 3}, {second, "a", 2}, {second, "b", 3}}},
		"one alone":       {changes: []change{{0, "a", 2}, {second, "a", 3}, {second, "a", 2}, {second, "a", 3}, {second, "a", 2}, {second, "a", 3}}},
		"different specs": {changes: []change{{0, "a", 2}, {second, "b", 3}, {second, "a", 4}, {second, "b", 5}, {second, "a", 6}, {second, "b", 7}}},
		"long ago": {
			changes: []change{{0, "a", 2}, {hour, "b", 3}, {second, "a", 2}, {hour, "b", 3}, {second, "a", 2}, {hour, "b", 3}, {contestWindow, "a", 4}},
		},
		"the operator's own writes": {
			changes: []change{{0, "a", 2}, {second, v1alpha1.FieldOwner, 3}, {second, "a", 2}, {second, v1alpha1.FieldOwner, 3}, {second, "a", 2}, {second, v1alpha1.FieldOwner, 3}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend, now, written := newBackend(), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), map[string]metav1.Time{}
			var changes specChanges
			for _, c := range tc.changes {
				now = now.Add(c.after)
				written[c.manager] = metav1.NewTime(now)
				backend.Generation++
				backend.ManagedFields = nil
				for manager, at := range written {
					backend.ManagedFields = append(backend.ManagedFields,
						metav1.ManagedFieldsEntry{Manager: manager, Time: &at},
						metav1.ManagedFieldsEntry{Manager: "status-writer", Subresource: "status", Time: ptr.To(metav1.NewTime(now))})
				}
				if c.replicas == 0 {
					continue
				}
				backend.Spec.Serving.Replicas = ptr.To(c.replicas)
				changes.observe(backend, now)
				changes.observe(backend, now)
			}
			if diff := cmp.Diff(tc.want, changes.revertingManagers(now)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
