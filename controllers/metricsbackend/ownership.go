// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// checkOwnership looks for objects of other owners before the first write, so that
// nothing is left half-applied. An object is ours by its label; a matching name is not
// enough.
func (r *Reconciler) checkOwnership(ctx context.Context, s *reconcileState) error {
	for _, gv := range s.versions.desired {
		if live := s.registered[apiServiceName(gv)]; live != nil && s.ours().HasLabel(live) {
			continue
		}
		live, err := r.findAPIService(ctx, s, gv)
		if err != nil {
			return err
		}
		s.versions.foreign[apiServiceName(gv)] = live
	}
	wanted := []manifests.Object{manifests.GuestServiceAccount(s.serving)}
	if s.deploys() {
		var err error
		if s.serving.Quota, err = r.wantsQuota(ctx, s); err != nil {
			return err
		}
		wanted = append(manifests.All(s.serving), wanted[0],
			manifests.CASecret(s.serving, manifests.Authorities{}), manifests.TLSSecret(s.serving, nil, nil, nil))
	}
	for _, object := range wanted {
		if err := r.applier.Check(ctx, s.backend.Name, object); err != nil {
			return err
		}
	}
	return nil
}

// findAPIService returns the APIService of a version by a live read, or nil. It adds a
// conflict if this backend cannot have it yet, and fails if this backend cannot have it
// at all, so that nothing else is changed either.
func (r *Reconciler) findAPIService(ctx context.Context, s *reconcileState, gv schema.GroupVersion) (*apiregistrationv1.APIService, error) {
	name := apiServiceName(gv)
	service := &apiregistrationv1.APIService{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, service)
	switch {
	case apierrors.IsNotFound(err):
		delete(s.history.contests, name)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get APIService %s: %w", name, err)
	}
	switch holder := service.Labels[v1alpha1.LabelBackend]; {
	case holder == s.backend.Name:
		return service, nil
	case holder != "":
		return service, r.checkBackend(ctx, s, gv, holder)
	case s.ours().PointsToPods(service):
		return nil, newStalledError(v1alpha1.ReasonNotOwned,
			"APIService %s points to this backend's Service, but lacks the label that makes it ours: put it back (kubectl label apiservice %s %s=%s)",
			name, name, v1alpha1.LabelBackend, s.backend.Name)
	case service.Spec.Service == nil:
		return nil, newStalledError(v1alpha1.ReasonNotOwned,
			"APIService %s is served by kube-apiserver itself: take version %s out of %s", name, gv.Version, versionsField(gv))
	}
	return service, s.mayAdopt(gv, service)
}

// checkBackend adds a conflict for a version of another MetricsBackend, unless that is
// being deleted, and waits for a successor.
func (r *Reconciler) checkBackend(ctx context.Context, s *reconcileState, gv schema.GroupVersion, holder string) error {
	var other v1alpha1.MetricsBackend
	err := r.Live.Get(ctx, client.ObjectKey{Name: holder}, &other)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get MetricsBackend %s: %w", holder, err)
	}
	name := apiServiceName(gv)
	switch {
	case apierrors.IsNotFound(err):
		s.addConflict(gv, v1alpha1.ReasonNotOwned,
			"APIService %s belongs to MetricsBackend %q, which does not exist: delete it (kubectl delete apiservice %s), and it is registered again",
			name, holder, name)
	case other.DeletionTimestamp == nil:
		s.addConflict(gv, v1alpha1.ReasonNotOwned,
			"APIService %s belongs to MetricsBackend %q: it is taken over once that MetricsBackend is deleted or no longer names the version",
			name, holder)
	}
	return nil
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
