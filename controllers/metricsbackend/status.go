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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

const (
	// resync is how often a backend that is ready is verified again.
	resync = time.Minute
	// stalledResync is for what no watch tells of, such as a Secret that arrives.
	stalledResync = 15 * time.Second
	// progressMin and progressMax bound how often work in progress is looked at.
	progressMin = time.Second
	progressMax = 15 * time.Second
)

// areas are the conditions that together make Ready, in the order of work.
// SourcesHealthy is not among them: a node that is down does not make the
// backend unready, and when no node answers Available says so. RulesReady is not
// either: a rule that fails for now may do so again tomorrow, with nothing for a
// pipeline to wait for. Only rules that cannot be compiled stall the backend, once
// everything else is done: like a typo anywhere in the spec, they need a new commit.
var areas = []string{
	v1alpha1.ConditionStaleAPIServicesRemoved,
	v1alpha1.ConditionCertificatesValid,
	v1alpha1.ConditionServingReady,
	v1alpha1.ConditionAPIServicesRegistered,
	v1alpha1.ConditionAvailable,
}

// firstSight tells whether the backend still lacks its finalizer or conditions.
func (s *scope) firstSight() bool {
	return !controllerutil.ContainsFinalizer(s.backend, v1alpha1.Finalizer) || s.condition(v1alpha1.ConditionReady).Type == ""
}

// introduce sets the conditions of a backend that is seen for the first time.
func (s *scope) introduce() {
	s.introduced = true
	s.again()
	if s.condition(v1alpha1.ConditionReady).Type != "" {
		return
	}
	s.backend.Status.ObservedGeneration = s.backend.Generation
	s.markUnreported()
	s.working(metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "starting")
}

// markUnreported sets the conditions of which nothing is known yet.
func (s *scope) markUnreported() {
	for _, kind := range append(slices.Clone(areas), v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady, v1alpha1.ConditionConsumersCompatible) {
		if s.condition(kind).Type == "" {
			s.mark(kind, metav1.ConditionUnknown, v1alpha1.ReasonNotYetReported, "not looked at yet")
		}
	}
}

// summarize sets what follows from the areas: Ready, Reconciling and Stalled, so
// that kstatus reads the object rightly at each moment.
func (s *scope) summarize(failed error) {
	status := &s.backend.Status
	status.ObservedGeneration = s.backend.Generation
	s.markUnreported()
	if s.observed {
		status.APIServices = s.sortedAPIServices()
	}
	s.describeServing()
	switch {
	case s.backend.DeletionTimestamp != nil:
		return
	case s.stalled != nil:
		s.markStalled(s.stalled)
		return
	}
	if failed != nil {
		s.working(metav1.ConditionUnknown, v1alpha1.ReasonAPICallFailed, "retrying: "+stableMessage(failed))
		return
	}
	for _, kind := range areas {
		if area := s.condition(kind); keepsFromReady(area) {
			s.working(readyWhile(area), area.Reason, kind+": "+area.Message)
			s.requeueWithin(s.progressDelay())
			return
		}
	}
	rules := s.condition(v1alpha1.ConditionRulesReady)
	if rules.Reason == v1alpha1.ReasonProgressing {
		// Who has just written a rule waits for Ready to know whether it is one.
		s.working(metav1.ConditionUnknown, rules.Reason, rules.Type+": "+rules.Message)
		s.requeueWithin(s.progressDelay())
		return
	}
	for _, waits := range []metav1.Condition{rules, s.condition(v1alpha1.ConditionConsumersCompatible)} {
		// Everything else is done, and only people, or a day, can change this.
		if waits.Reason == v1alpha1.ReasonRulesInvalid || waits.Type == v1alpha1.ConditionConsumersCompatible && waits.Status == metav1.ConditionFalse {
			s.markStalled(&stalledError{waits.Reason, waits.Message})
			return
		}
	}
	s.mark(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "the backend is as its spec says")
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionReconciling)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionStalled)
	s.requeueWithin(resync)
	if s.condition(v1alpha1.ConditionSourcesHealthy).Status != metav1.ConditionTrue || len(s.spec.Sources) > 0 {
		// No watch tells of sources.
		s.requeueWithin(progressMax)
	}
}

// keepsFromReady tells whether an area holds up Ready. A warning of what is to come
// does not, and a certificate that is being replaced does, though it is valid: who
// asked for the change waits for Ready.
func keepsFromReady(area metav1.Condition) bool {
	switch area.Reason {
	case v1alpha1.ReasonConsumersActive, v1alpha1.ReasonCertificateExpiring:
		return false
	case v1alpha1.ReasonRotating:
		return true
	}
	return area.Status != metav1.ConditionTrue
}

// working marks work in progress. GitOps tools take Ready=False for a failure
// and Unknown for progress.
func (s *scope) working(ready metav1.ConditionStatus, reason, message string) {
	s.mark(v1alpha1.ConditionReady, ready, reason, message)
	s.mark(v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, message)
	meta.RemoveStatusCondition(&s.backend.Status.Conditions, v1alpha1.ConditionStalled)
}

// markStalled marks what only a change from outside can end. It does not remove
// a condition that stays: that would begin anew each time, and be written.
func (s *scope) markStalled(why *stalledError) {
	s.mark(v1alpha1.ConditionReady, metav1.ConditionFalse, why.reason, why.message)
	s.mark(v1alpha1.ConditionStalled, metav1.ConditionTrue, why.reason, why.message)
	meta.RemoveStatusCondition(&s.backend.Status.Conditions, v1alpha1.ConditionReconciling)
	s.requeueWithin(stalledResync)
}

// readyWhile is Ready's status while an area is not True: False for what does
// not work, Unknown for what is only not done yet.
func readyWhile(area metav1.Condition) metav1.ConditionStatus {
	switch area.Reason {
	case v1alpha1.ReasonRolloutFailed, v1alpha1.ReasonVersionNotServed, v1alpha1.ReasonProbeFailed,
		v1alpha1.ReasonCertificateInvalid, v1alpha1.ReasonCertificateExpired, v1alpha1.ReasonCertificateMismatch,
		v1alpha1.ReasonCertManagerMissing, v1alpha1.ReasonSecretMissing, v1alpha1.ReasonAggregatorUnavailable, v1alpha1.ReasonRequestFailed,
		v1alpha1.ReasonNoFreshSample, v1alpha1.ReasonNotInDiscovery, v1alpha1.ReasonNoReadyEndpoint:
		return metav1.ConditionFalse
	}
	return metav1.ConditionUnknown
}

// progressDelay grows with the time that the work has taken: a rollout of a
// minute is seen at once, one that hangs costs little.
func (s *scope) progressDelay() time.Duration {
	since := s.condition(v1alpha1.ConditionReconciling).LastTransitionTime.Time
	return min(max(s.now.Sub(since)/8, progressMin), progressMax)
}

func (s *scope) requeueWithin(d time.Duration) {
	if s.requeueAfter == 0 || d < s.requeueAfter {
		s.requeueAfter = d
	}
}

func (s *scope) sortedAPIServices() []v1alpha1.APIServiceStatus {
	order := map[string]int{}
	for i, gv := range manifests.KnownVersions() {
		order[manifests.APIServiceName(gv)] = i - len(manifests.KnownVersions())
	}
	return slices.SortedFunc(maps.Values(s.apiServices), func(a, b v1alpha1.APIServiceStatus) int {
		return cmp.Or(cmp.Compare(order[a.Name], order[b.Name]), cmp.Compare(a.Name, b.Name))
	})
}

// availableVersions are the versions that are registered and available.
func (s *scope) availableVersions() []string {
	var versions []string
	for _, service := range s.sortedAPIServices() {
		if gv, ok := versionOf(service.Name); ok && service.State == v1alpha1.APIServiceAvailable {
			versions = append(versions, shortVersion(gv))
		}
	}
	return versions
}

// keepTransitionTimes takes back the time of conditions that one phase set and a
// later one set back: their status did not change for anyone who looks, and a time
// that did would be a status to write at each look.
func (s *scope) keepTransitionTimes() {
	for i := range s.backend.Status.Conditions {
		now := &s.backend.Status.Conditions[i]
		if was := meta.FindStatusCondition(s.before.Conditions, now.Type); was != nil && was.Status == now.Status {
			now.LastTransitionTime = was.LastTransitionTime
		}
	}
}

// writeStatus persists the status if it changed, and only on top of what was
// read: whoever changed the object meanwhile is heard first.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	s.keepTransitionTimes()
	if equality.Semantic.DeepEqual(s.before, s.backend.Status) {
		return nil
	}
	base := s.backend.DeepCopy()
	base.Status = s.before
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, s.backend.DeepCopy(), patch, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("write the status of MetricsBackend %s: %w", s.backend.Name, err)
	}
	return nil
}
