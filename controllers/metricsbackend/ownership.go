// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// checkOwnership looks for objects of other owners before the first write, so that
// nothing is left half-applied. An object is ours by its label; a matching name is not
// enough.
func (r *Reconciler) checkOwnership(ctx context.Context, s *reconcileState) error {
	for _, gv := range s.versions.desired {
		if live := s.registered[apiServiceName(gv)]; live != nil && s.identity().HasLabel(live) {
			continue
		}
		v := s.version(gv)
		if err := r.readVersion(ctx, s, v); err != nil {
			return err
		}
		d, err := r.decide(ctx, s, v, ownNeeds...)
		if err != nil {
			return err
		}
		if s.recordDecision(v, d); d.Blocks {
			return &stalledError{d.Reason, d.Waits}
		}
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

// conflict returns why the APIService of a version cannot be written, or an empty defect.
func (s *reconcileState) conflict(gv schema.GroupVersion) defect {
	return find(s.versions.conflicts, func(c defect) bool { return c.gv == gv })
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
func (s *reconcileState) addConflict(gv schema.GroupVersion, reason, message string) {
	if s.conflict(gv) == (defect{}) {
		s.versions.conflicts = append(s.versions.conflicts, defect{gv, reason, message})
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

// observeHolder reads the MetricsBackend that the label of an APIService names.
func (r *Reconciler) observeHolder(ctx context.Context, v *lifecycle.Version) (lifecycle.Holder, error) {
	var other v1alpha1.MetricsBackend
	name := v.Live.Labels[v1alpha1.LabelBackend]
	switch err := r.APIReader.Get(ctx, client.ObjectKey{Name: name}, &other); {
	case apierrors.IsNotFound(err):
		return lifecycle.HolderMissing, nil
	case err != nil:
		return "", fmt.Errorf("get MetricsBackend %s: %w", name, err)
	case other.DeletionTimestamp != nil:
		return lifecycle.HolderDeleting, nil
	}
	return lifecycle.HolderExists, nil
}

// contest returns the contest over an APIService. A new one is stopped if the stored
// status says so of this generation, so that a restart does not start the writes over.
func (s *reconcileState) contest(name string) *lifecycle.Contest {
	c := s.history.contests[name]
	if c == nil || c.Generation != s.backend.Generation {
		restarted, stored := c == nil, s.reportedFailure()
		c = &lifecycle.Contest{Generation: s.backend.Generation}
		switch {
		case !restarted || stored.Reason != v1alpha1.ReasonContested:
		case strings.Contains(stored.Message, lifecycle.AuthorityRemoved):
			c.AuthorityRemoved = s.now
		default:
			c.Stop(s.now)
		}
		s.history.contests[name] = c
	}
	return c
}

// isContested reports whether the operator has paused writing the APIService, since another
// manager keeps changing what differs from the target with this caBundle.
func (s *reconcileState) isContested(service *apiregistrationv1.APIService, caBundle []byte) bool {
	identity := s.identity()
	identity.Target = s.targetWith(caBundle)
	_, contested := identity.ConflictingManager(service)
	return contested && s.contest(service.Name).Paused(s.now)
}

// deploys reports whether the operator deploys the implementation itself.
func (s *reconcileState) deploys() bool { return s.spec.Existing == nil }

// target returns the Service that this backend's APIServices should point to.
func (s *reconcileState) target() manifests.Target { return s.targetWith(s.certificate.CABundle) }

// targetWith returns the target with a caBundle that verifies our pods.
func (s *reconcileState) targetWith(caBundle []byte) manifests.Target {
	if s.deploys() {
		return s.serving.Target(caBundle)
	}
	return manifests.ExistingTarget(s.spec.Existing)
}

// identity says which APIServices are this backend's.
func (s *reconcileState) identity() lifecycle.Identity {
	return lifecycle.Identity{Serving: s.serving, Target: s.target(), Deploys: s.deploys()}
}
