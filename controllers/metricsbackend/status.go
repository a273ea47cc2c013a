// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/installation"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
)

const (
	// resync is how often a ready backend is verified.
	resync = time.Minute
	// stalledResync is for changes that are not watched, such as a new Secret.
	stalledResync = 15 * time.Second
	// progressMin and progressMax bound how often work in progress is checked.
	progressMin = time.Second
	progressMax = 15 * time.Second
)

// readyConditions together make Ready, in the order of work. SourcesHealthy is not one: a
// node that is down does not make the backend unready, and Available covers the case that
// no node answers. RulesReady is not one either: a rule may fail at any time, with
// nothing for a pipeline to wait for. Only rules that cannot be compiled stall the
// backend, once everything else is done: like any invalid spec, they need a new commit.
var readyConditions = []string{
	v1alpha1.ConditionStaleAPIServicesRemoved,
	v1alpha1.ConditionCertificatesValid,
	v1alpha1.ConditionServingReady,
	v1alpha1.ConditionAPIServicesRegistered,
	v1alpha1.ConditionAvailable,
}

// isNew reports whether the backend lacks its finalizer or conditions.
func (s *reconcileState) isNew() bool {
	return !controllerutil.ContainsFinalizer(s.backend, v1alpha1.Finalizer) || s.condition(v1alpha1.ConditionReady).Type == ""
}

// initialize sets the first conditions of a new backend.
func (s *reconcileState) initialize() {
	s.requeueNow()
	if s.condition(v1alpha1.ConditionReady).Type != "" {
		return
	}
	s.backend.Status.ObservedGeneration = s.backend.Generation
	s.setUnreported()
	s.setReconciling(metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "starting")
}

// setUnreported sets conditions that no phase has set yet.
func (s *reconcileState) setUnreported() {
	for _, kind := range append(slices.Clone(readyConditions), v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady, v1alpha1.ConditionConsumersCompatible) {
		if s.condition(kind).Type == "" {
			s.setCondition(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotYetReported, "not looked at yet")
		}
	}
}

// summarize sets Ready, Reconciling and Stalled from the other conditions, so that
// kstatus reads the object correctly at each time.
func (s *reconcileState) summarize(failed error) {
	status := &s.backend.Status
	status.ObservedGeneration = s.backend.Generation
	s.setUnreported()
	if s.registered != nil {
		if failed != nil {
			// Of versions that were not reached, what is known stays, with its record.
			for _, known := range s.storedStatus.APIServices {
				if _, reached := s.apiServices[known.Name]; !reached {
					s.apiServices[known.Name] = known
				}
			}
		}
		status.APIServices = s.sortedAPIServices()
		for i := range status.APIServices {
			s.describeAPIService(&status.APIServices[i])
		}
	}
	s.describeServing()
	switch {
	case s.backend.DeletionTimestamp != nil:
		return
	case s.outcome.stalled != nil:
		s.setStalledCondition(s.outcome.stalled)
		return
	}
	if failed != nil {
		s.setReconciling(metav1.ConditionUnknown, v1alpha1.ReasonAPICallFailed, "retrying: "+stableErrorMessage(failed))
		return
	}
	for _, kind := range readyConditions {
		if area := s.condition(kind); preventsReady(area) {
			s.setReconciling(readyStatusFor(area), area.Reason, kind+": "+area.Message)
			s.requeueWithin(s.progressDelay())
			return
		}
	}
	if other := status.Installation.Other; other != "" {
		s.setStalledCondition(&stalledError{v1alpha1.ReasonOtherInstallation, installation.Message(status.Installation.Namespace, other, true)})
		return
	}
	if s.serving.ObjectsRoleMissing {
		s.setStalledCondition(&stalledError{v1alpha1.ReasonForbidden, fmt.Sprintf("ClusterRole %s does not exist, so custom metrics fail for label selectors of anything but pods. "+
			"Everything else is done: apply config/rbac with the names that it has (no namePrefix or nameSuffix of kustomize), or remove spec.customMetrics", manifests.ObjectsRole)})
		return
	}
	rules := s.condition(v1alpha1.ConditionRulesReady)
	if rules.Reason == v1alpha1.ReasonProgressing {
		// After a change of a rule, Ready says whether it is valid.
		s.setReconciling(metav1.ConditionUnknown, rules.Reason, rules.Type+": "+rules.Message)
		s.requeueWithin(s.progressDelay())
		return
	}
	for _, waits := range []metav1.Condition{rules, s.condition(v1alpha1.ConditionConsumersCompatible)} {
		// Everything else is done, and only a user, or the next day, can change this.
		if waits.Reason == v1alpha1.ReasonRulesInvalid || waits.Type == v1alpha1.ConditionConsumersCompatible && waits.Status == metav1.ConditionFalse {
			s.setStalledCondition(&stalledError{waits.Reason, waits.Message})
			return
		}
	}
	message := "all components match the spec"
	if s.condition(v1alpha1.ConditionSourcesHealthy).Status == metav1.ConditionFalse {
		message += ", but not all sources are healthy: see SourcesHealthy"
	}
	if s.history.statusDropped {
		message += "; parts of the status are not stored, since the CRD is older than the operator: kubectl apply --server-side -k config/crd"
	}
	s.setCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionReconciling)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionStalled)
	s.requeueWithin(resync)
	if s.condition(v1alpha1.ConditionSourcesHealthy).Status != metav1.ConditionTrue || len(s.spec.Sources) > 0 {
		// Sources are not watched.
		s.requeueWithin(progressMax)
	}
}

// describeAPIService adds to the state of a version what is known of the other implementation.
func (s *reconcileState) describeAPIService(service *v1alpha1.APIServiceStatus) {
	live, theirs := s.registered[service.Name], s.others[service.Name]
	service.PreviousOwner = s.record(service.Name, live)
	switch {
	case theirs != nil:
		found := s.history.comparisons[service.Name]
		differences := slices.Concat(found.Lost, found.Changed)
		switch {
		case found.at.IsZero():
			differences = []string{"not compared yet"}
		case found.why != "":
			differences = []string{"cannot be compared: " + found.why}
		}
		service.Differences = differences[:min(len(differences), maxDifferences)]
		service.AppliedBy = apiservices.ManagedBy(theirs).Who
	case service.PreviousOwner != "" && live != nil:
		service.AppliedBy = apiservices.ManagedBy(live).Who
	}
}

// preventsReady reports whether a condition keeps Ready from being True. A warning does
// not. A certificate that is being replaced does, although it is valid: the change that
// asked for it is not finished.
func preventsReady(area metav1.Condition) bool {
	switch area.Reason {
	case v1alpha1.ReasonConsumersActive, v1alpha1.ReasonCertificateExpiring:
		return false
	case v1alpha1.ReasonRotating:
		return true
	}
	return area.Status != metav1.ConditionTrue
}

// setReconciling sets the conditions of work in progress. GitOps tools read Ready=False
// as a failure and Unknown as progress.
func (s *reconcileState) setReconciling(ready metav1.ConditionStatus, reason, message string) {
	s.setCondition(v1alpha1.ConditionReady, ready, reason, message)
	s.setCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, message)
	meta.RemoveStatusCondition(&s.backend.Status.Conditions, v1alpha1.ConditionStalled)
}

// setStalledCondition sets the conditions of a backend that needs a change from outside.
// It keeps an existing Stalled condition, whose transition time would otherwise change.
func (s *reconcileState) setStalledCondition(why *stalledError) {
	s.setCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, why.reason, why.message)
	s.setCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, why.reason, why.message)
	meta.RemoveStatusCondition(&s.backend.Status.Conditions, v1alpha1.ConditionReconciling)
	s.requeueWithin(stalledResync)
}

// readyStatusFor returns the status of Ready while a condition is not True: False for
// failures, Unknown for work in progress.
func readyStatusFor(area metav1.Condition) metav1.ConditionStatus {
	switch area.Reason {
	case v1alpha1.ReasonRolloutFailed, v1alpha1.ReasonVersionNotServed, v1alpha1.ReasonProbeFailed,
		v1alpha1.ReasonCertificateInvalid, v1alpha1.ReasonCertificateExpired, v1alpha1.ReasonCertificateMismatch,
		v1alpha1.ReasonCertManagerMissing, v1alpha1.ReasonSecretMissing, v1alpha1.ReasonAggregatorUnavailable, v1alpha1.ReasonRequestFailed,
		v1alpha1.ReasonNoFreshSample, v1alpha1.ReasonNotInDiscovery, v1alpha1.ReasonNoReadyEndpoint, v1alpha1.ReasonNotOwned:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

// progressDelay grows with the duration of the work: a short rollout is seen at once, a
// long one costs little.
func (s *reconcileState) progressDelay() time.Duration {
	since := s.condition(v1alpha1.ConditionReconciling).LastTransitionTime.Time
	return min(max(s.now.Sub(since)/8, progressMin), progressMax)
}

func (s *reconcileState) requeueWithin(d time.Duration) {
	if s.outcome.requeueAfter == 0 || d < s.outcome.requeueAfter {
		s.outcome.requeueAfter = d
	}
}

func (s *reconcileState) sortedAPIServices() []v1alpha1.APIServiceStatus {
	order := map[string]int{}
	for i, gv := range manifests.KnownVersions() {
		order[manifests.APIServiceName(gv)] = i - len(manifests.KnownVersions())
	}
	return slices.SortedFunc(maps.Values(s.apiServices), func(a, b v1alpha1.APIServiceStatus) int {
		return cmp.Or(cmp.Compare(order[a.Name], order[b.Name]), cmp.Compare(a.Name, b.Name))
	})
}

// keepTransitionTimes restores the transition times of conditions that changed and
// changed back within this pass, so that the status does not differ.
func (s *reconcileState) keepTransitionTimes() {
	for i := range s.backend.Status.Conditions {
		now := &s.backend.Status.Conditions[i]
		if was := meta.FindStatusCondition(s.storedStatus.Conditions, now.Type); was != nil && was.Status == now.Status {
			now.LastTransitionTime = was.LastTransitionTime
		}
	}
}

// writeStatus writes the status if it changed. It fails if the status was written by someone else since it was read. The
// spec may change meanwhile: observedGeneration says which one the status is of.
func (r *Reconciler) writeStatus(ctx context.Context, s *reconcileState) error {
	s.keepTransitionTimes()
	if equality.Semantic.DeepEqual(s.storedStatus, s.backend.Status) {
		return nil
	}
	base := s.backend.DeepCopy()
	base.Status = s.storedStatus
	written, err := r.patchStatus(ctx, base, s.backend)
	if live := (&v1alpha1.MetricsBackend{}); apierrors.IsConflict(err) &&
		r.APIReader.Get(ctx, client.ObjectKeyFromObject(base), live) == nil && live.UID == base.UID && equality.Semantic.DeepEqual(live.Status, s.storedStatus) {
		// Otherwise tools that change the spec all the time would keep the status from being written.
		base.ResourceVersion = live.ResourceVersion
		written, err = r.patchStatus(ctx, base, s.backend)
	}
	if err != nil {
		return fmt.Errorf("write the status of MetricsBackend %s: %w", s.backend.Name, err)
	}
	if dropped := !equality.Semantic.DeepEqual(written, &s.backend.Status); dropped != s.history.statusDropped {
		s.history.statusDropped = dropped
		s.requeueNow()
	}
	return nil
}

// patchStatus changes the status of base to that of backend, and returns what was stored.
func (r *Reconciler) patchStatus(ctx context.Context, base, backend *v1alpha1.MetricsBackend) (*v1alpha1.MetricsBackendStatus, error) {
	written := backend.DeepCopy()
	err := r.Client.Status().Patch(ctx, written, unchangedSince(base), client.FieldOwner(v1alpha1.FieldOwner))
	return &written.Status, err
}
