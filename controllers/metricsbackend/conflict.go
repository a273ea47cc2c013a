// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// validateConflict yields versions that an older MetricsBackend claims: it
// retires those of them that it has registered, and stalls.
func (r *Reconciler) validateConflict(ctx context.Context, s *scope) error {
	var list v1alpha1.MetricsBackendList
	if err := r.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list MetricsBackends: %w", err)
	}
	var first error
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == s.backend.UID || !older(other, s.backend) {
			continue
		}
		spec := *other.Spec.DeepCopy()
		v1alpha1.SetDefaults(&spec)
		for _, claimed := range desiredVersions(spec) {
			if !slices.Contains(s.desired, claimed) {
				continue
			}
			s.desired = slices.DeleteFunc(s.desired, func(gv schema.GroupVersion) bool { return gv == claimed })
			if first == nil {
				first = stall(v1alpha1.ReasonConflict,
					"MetricsBackend %q is older and claims %s: take the version out of one of the two specs, or delete one of them",
					other.Name, manifests.APIServiceName(claimed))
			}
		}
	}
	return first
}

// older tells whether a was made before b; names decide within one second, the
// resolution of a creation time.
func older(a, b *v1alpha1.MetricsBackend) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
