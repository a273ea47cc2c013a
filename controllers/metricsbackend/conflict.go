// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
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

// yield gives up versions that an older MetricsBackend claims: it retires those of
// them that it has registered, and stalls. Only their registration waits. Pods are
// deployed and asked, so that this backend can take over in one step.
func (r *Reconciler) yield(ctx context.Context, s *scope) error {
	others, err := r.otherClaims(ctx, s)
	if err != nil {
		return err
	}
	for _, other := range others {
		if !older(other.backend, s.backend) {
			continue
		}
		for _, claimed := range other.versions {
			if !slices.Contains(s.desired, claimed) {
				continue
			}
			s.desired = slices.DeleteFunc(s.desired, func(gv schema.GroupVersion) bool { return gv == claimed })
			s.yielded = append(s.yielded, claimed)
			s.hold(claimed, v1alpha1.ReasonConflict,
				"MetricsBackend %q is older and claims %s: take the version out of one of the two specs, or delete one of them",
				other.backend.Name, apiServiceName(claimed))
		}
	}
	return nil
}

// claim is what another MetricsBackend's spec names.
type claim struct {
	backend  *v1alpha1.MetricsBackend
	versions []schema.GroupVersion
}

// otherClaims are those of all other MetricsBackends that are here to stay, the
// oldest first.
func (r *Reconciler) otherClaims(ctx context.Context, s *scope) ([]claim, error) {
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
	slices.SortFunc(claims, func(a, b claim) int {
		if older(a.backend, b.backend) {
			return -1
		}
		return 1
	})
	return claims, nil
}

// awaitHeir is what a backend that is being deleted waits for before it lets go of
// a version: that another one, whose pods are ready to serve it, leads the
// APIService to them, so that the version is never out of discovery. Not for long.
func (r *Reconciler) awaitHeir(ctx context.Context, s *scope, gv schema.GroupVersion) (string, error) {
	if s.withoutNamespace {
		// Its pods are ending, or gone.
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
	case !s.holds(&live) || live.DeletionTimestamp != nil:
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
		if !inherits(other.backend) {
			return "", nil
		}
		return fmt.Sprintf("APIService %s is about to be taken over by MetricsBackend %q", name, other.backend.Name), nil
	}
	return "", nil
}

// inherits tells whether the backend waits for nothing but the version.
func inherits(backend *v1alpha1.MetricsBackend) bool {
	serving := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionServingReady)
	stalled := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionStalled)
	return serving != nil && serving.Status == metav1.ConditionTrue && serving.ObservedGeneration == backend.Generation &&
		(stalled == nil || stalled.Reason == v1alpha1.ReasonConflict || stalled.Reason == v1alpha1.ReasonNotOwned)
}

// older tells whether a was made before b; names decide within one second, the
// resolution of a creation time.
func older(a, b *v1alpha1.MetricsBackend) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
