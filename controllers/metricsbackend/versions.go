// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// desiredVersions returns the versions that a spec names, the best version of each group
// first.
func desiredVersions(spec v1alpha1.MetricsBackendSpec) []schema.GroupVersion {
	return slices.DeleteFunc(manifests.KnownVersions(), func(known schema.GroupVersion) bool {
		return !slices.Contains(spec.Section(known.Group).Versions, known.Version)
	})
}

// versionsField returns the field of the spec that names the versions of the group.
func versionsField(gv schema.GroupVersion) string {
	return "spec." + new(v1alpha1.MetricsBackendSpec).Section(gv.Group).Field + ".versions"
}

// shortVersion returns the version, with the first word of its group unless that is
// metrics.k8s.io.
func shortVersion(gv schema.GroupVersion) string {
	if gv.Group == manifests.ResourceMetricsGroup {
		return gv.Version
	}
	word, _, _ := strings.Cut(gv.Group, ".")
	return word + "/" + gv.Version
}

func apiServiceName(gv schema.GroupVersion) string { return manifests.APIServiceName(gv) }

func shortVersions(versions []schema.GroupVersion) []string {
	var names []string
	for _, gv := range versions {
		names = append(names, shortVersion(gv))
	}
	return names
}

// claims removes from the desired versions those that an older MetricsBackend claims, and
// adds a conflict for each. Only their registration waits: pods are deployed and probed, so
// that the backend can take over in one step.
func (r *Reconciler) claims(ctx context.Context, s *reconcileState) error {
	if s.registered == nil {
		return nil
	}
	others, err := otherClaims(ctx, r.Client, s)
	if err != nil {
		return err
	}
	for _, gv := range desiredVersions(s.spec) {
		older := find(others, func(c claim) bool { return compareAge(c.backend, s.backend) < 0 && slices.Contains(c.versions, gv) }).backend
		if older != nil {
			s.versions.desired = slices.DeleteFunc(s.versions.desired, func(other schema.GroupVersion) bool { return other == gv })
			s.addConflict(gv, v1alpha1.ReasonConflict, describeClaim(older, gv))
		}
	}
	return nil
}

// describeClaim says that an older backend has the version, and how the younger one gets it.
func describeClaim(older *v1alpha1.MetricsBackend, gv schema.GroupVersion) string {
	claims := fmt.Sprintf("MetricsBackend %q is older and claims %s", older.Name, apiServiceName(gv))
	if meta.IsStatusConditionFalse(older.Status.Conditions, v1alpha1.ConditionAvailable) {
		return claims + ", but is not available: repair or delete it, or take the version out of its spec"
	}
	return claims + ": take the version out of one of the two specs, or delete one of them"
}

// claim is the versions that another MetricsBackend's spec names.
type claim struct {
	backend  *v1alpha1.MetricsBackend
	versions []schema.GroupVersion
}

// otherClaims returns the versions claimed by other MetricsBackends that are not being
// deleted, oldest backend first.
func otherClaims(ctx context.Context, reader client.Reader, s *reconcileState) ([]claim, error) {
	var list v1alpha1.MetricsBackendList
	if err := reader.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list MetricsBackends: %w", err)
	}
	var claims []claim
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID == s.backend.UID || other.DeletionTimestamp != nil {
			continue
		}
		spec := *other.Spec.DeepCopy()
		v1alpha1.SetDefaults(&spec)
		claims = append(claims, claim{other, desiredVersions(spec)})
	}
	slices.SortFunc(claims, func(a, b claim) int { return compareAge(a.backend, b.backend) })
	return claims, nil
}

// successor returns the backend that is about to take a version over from one that is being
// deleted, or "". Its pods serve the version, so that it stays in discovery. The wait for it ends
// after successorTimeout.
func (r *Reconciler) successor(ctx context.Context, s *reconcileState, v *lifecycle.Version) (string, error) {
	deleted := s.backend.DeletionTimestamp
	if deleted == nil || s.namespace.gone || // its pods are gone or terminating
		s.now.Sub(deleted.Time) >= successorTimeout || !s.identity().HasLabel(v.Live) || v.Live.DeletionTimestamp != nil {
		return "", nil
	}
	// Around the cache, which may be older than the status that says that it is ready.
	others, err := otherClaims(ctx, r.APIReader, s)
	claimant := find(others, func(other claim) bool { return slices.Contains(other.versions, v.GV) }).backend
	if err != nil || claimant == nil || !readyToTakeOver(claimant) || v.IsRecorded() && claimant.Spec.Section(v.GV.Group).Adoption != v1alpha1.AdoptionAlways {
		return "", err // what is someone else's goes back, unless the claimant may take it over
	}
	return claimant.Name, nil
}

// readyToTakeOver reports whether the backend waits for nothing but the version.
func readyToTakeOver(backend *v1alpha1.MetricsBackend) bool {
	serving := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionServingReady)
	stalled := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionStalled)
	return serving != nil && serving.Status == metav1.ConditionTrue && serving.ObservedGeneration == backend.Generation &&
		(stalled == nil || stalled.Reason == v1alpha1.ReasonConflict || stalled.Reason == v1alpha1.ReasonNotOwned)
}

// compareAge orders backends by their creation, the oldest first. Creation times have a
// resolution of one second; within it the name decides.
func compareAge(a, b *v1alpha1.MetricsBackend) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
