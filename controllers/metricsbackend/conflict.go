// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// excludeClaimed returns the desired versions without those that an older MetricsBackend
// claims, and a conflict for each of those. Only their registration waits: pods are
// deployed and probed, so that the backend can take over in one step.
func excludeClaimed(backend *v1alpha1.MetricsBackend, desired []schema.GroupVersion, others []claim) ([]schema.GroupVersion, []versionConflict) {
	var conflicts []versionConflict
	for _, other := range others {
		for _, claimed := range other.versions {
			if compareAge(other.backend, backend) >= 0 || !slices.Contains(desired, claimed) {
				continue
			}
			desired = slices.DeleteFunc(desired, func(gv schema.GroupVersion) bool { return gv == claimed })
			conflicts = append(conflicts, versionConflict{claimed, v1alpha1.ReasonConflict, fmt.Sprintf(
				"MetricsBackend %q is older and claims %s: take the version out of one of the two specs, or delete one of them",
				other.backend.Name, apiServiceName(claimed))})
		}
	}
	return desired, conflicts
}

// claim is the versions that another MetricsBackend's spec names.
type claim struct {
	backend  *v1alpha1.MetricsBackend
	versions []schema.GroupVersion
}

// otherClaims returns the versions claimed by other MetricsBackends that are not being
// deleted, oldest backend first.
func (r *Reconciler) otherClaims(ctx context.Context, s *reconcileState) ([]claim, error) {
	var list v1alpha1.MetricsBackendList
	if err := r.Client.List(ctx, &list); err != nil {
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

// awaitSuccessor returns what a backend that is being deleted waits for before it retires
// a version, or "". Another backend whose pods serve the version takes the APIService
// over, so that the version stays in discovery. The wait ends after successorTimeout.
func (r *Reconciler) awaitSuccessor(ctx context.Context, s *reconcileState, gv schema.GroupVersion) (string, error) {
	if s.namespace.gone {
		// Its pods are gone or terminating.
		return "", nil
	}
	name := apiServiceName(gv)
	left := successorTimeout - s.now.Sub(s.backend.DeletionTimestamp.Time)
	if left <= 0 {
		return "", nil
	}
	var live apiregistrationv1.APIService
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &live)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get APIService %s: %w", name, err)
	case !s.hasLabel(&live) || live.DeletionTimestamp != nil:
		return "", nil
	}
	others, err := r.otherClaims(ctx, s)
	if err != nil {
		return "", err
	}
	for _, other := range others {
		if !slices.Contains(other.versions, gv) {
			continue
		}
		if !readyToTakeOver(other.backend) {
			return "", nil
		}
		return fmt.Sprintf("APIService %s is about to be taken over by MetricsBackend %q", name, other.backend.Name), nil
	}
	return "", nil
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

// versionConflict is why a version that is ready cannot be registered.
type versionConflict struct {
	gv              schema.GroupVersion
	reason, message string
}

// conflict returns why an APIService cannot be written, or nil.
func (s *reconcileState) conflict(name string) *versionConflict {
	i := slices.IndexFunc(s.versions.conflicts, func(c versionConflict) bool { return apiServiceName(c.gv) == name })
	if i < 0 {
		return nil
	}
	return &s.versions.conflicts[i]
}

// excluded returns the versions of the spec that an older backend claims.
func (s *reconcileState) excluded() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, c := range s.versions.conflicts {
		if c.reason == v1alpha1.ReasonConflict {
			versions = append(versions, c.gv)
		}
	}
	return versions
}

// addConflict keeps one version from being registered. Its pods are deployed and probed
// nevertheless, so that it can be registered as soon as the conflict ends.
func (s *reconcileState) addConflict(gv schema.GroupVersion, reason, format string, args ...any) {
	if s.conflict(apiServiceName(gv)) == nil {
		s.versions.conflicts = append(s.versions.conflicts, versionConflict{gv, reason, fmt.Sprintf(format, args...)})
	}
}

// reportConflicts sets Stalled for conflicts. It runs after the phases that prepare,
// whose reasons come first.
func (s *reconcileState) reportConflicts() {
	for _, c := range s.versions.conflicts {
		s.setStalled(&stalledError{c.reason, c.message})
		if s.registered[apiServiceName(c.gv)] == nil {
			s.setVersionState(c.gv, v1alpha1.APIServicePending, c.message)
		}
	}
}
