// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// adoptAPIService points an existing APIService at the target and labels it as this
// backend's, in one write, so that it is never half-owned. The write carries the
// resourceVersion that was read, so that the recorded previous owner is the one that was
// replaced.
func (r *Reconciler) adoptAPIService(ctx context.Context, s *reconcileState, v *lifecycle.Version, d lifecycle.Decision) error {
	live, from := v.Live, lifecycle.DescribeTarget(v.Live)
	record, adopted := live.Annotations[v1alpha1.AnnotationPreviousOwner], v.IsForeign()
	owner, err := lifecycle.ReadPreviousOwner(live)
	if adopted || record == "" && v.ReplacesOther() {
		owner, err = new(lifecycle.RecordOwner(live, s.serving.SharedLabels())), nil
	}
	if err == nil {
		body, err := json.Marshal(owner)
		if err != nil {
			return fmt.Errorf("record the owner of APIService %s: %w", live.Name, err)
		}
		record = string(body)
	}
	klog.FromContext(ctx).Info("Pointing an APIService at another Service", "apiService", live.Name, "from", from, "to", v.Identity.Target.String(), "adopted", adopted)
	s.startTrial(live.Name)
	if err := r.applyAdoption(ctx, s, v, annotations(record, d.State == lifecycle.Trial)); err != nil {
		return fmt.Errorf("point APIService %s from %s to Service %s: %w", live.Name, from, v.Identity.Target, err)
	}
	if adopted {
		r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionAdopted", "Register",
			"took APIService %s over from %s", live.Name, from)
	} else {
		r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionMoved", "Register",
			"APIService %s points to Service %s now, and pointed to %s before", live.Name, v.Identity.Target, from)
	}
	// Verify the new target at once.
	s.requeueNow()
	return nil
}

func (r *Reconciler) applyAdoption(ctx context.Context, s *reconcileState, v *lifecycle.Version, annotations map[string]string) error {
	live, target := v.Live, v.Identity.Target
	if target.InsecureSkipTLSVerify && len(live.Spec.CABundle) > 0 {
		// kube-apiserver rejects a caBundle beside insecureSkipTLSVerify, and an apply
		// cannot remove a caBundle that another manager owns too.
		return r.updateAdoption(ctx, s, live, target, annotations)
	}
	desired := manifests.APIService(s.serving, v.GV, target).
		WithResourceVersion(live.ResourceVersion).WithUID(live.UID).WithAnnotations(annotations)
	return r.Client.Apply(ctx, desired, client.FieldOwner(v1alpha1.FieldOwner), client.ForceOwnership)
}

// updateAdoption is applyAdoption by an update. The next pass applies the other fields.
func (r *Reconciler) updateAdoption(ctx context.Context, s *reconcileState, live *apiregistrationv1.APIService, target manifests.Target, annotations map[string]string) error {
	updated := live.DeepCopy()
	updated.Spec.Service = target.Reference()
	updated.Spec.CABundle, updated.Spec.InsecureSkipTLSVerify = nil, true
	for key, value := range s.serving.SharedLabels() {
		metav1.SetMetaDataLabel(&updated.ObjectMeta, key, value)
	}
	for key, value := range annotations {
		metav1.SetMetaDataAnnotation(&updated.ObjectMeta, key, value)
	}
	return r.Client.Update(ctx, updated, client.FieldOwner(v1alpha1.FieldOwner))
}

// addAuthority adds our authority to the caBundle of someone else's APIService, to find out whether another manager
// takes it out again.
func (r *Reconciler) addAuthority(ctx context.Context, s *reconcileState, v *lifecycle.Version) error {
	klog.FromContext(ctx).Info("Adding our authority to the caBundle of an APIService of someone else", "apiService", v.Name())
	changed, err := r.setCABundle(ctx, v.Live, v.Identity.Target.CABundle)
	if err != nil {
		return err
	}
	s.contest(v.Name()).AuthorityAdded = true
	v.SetLive(changed)
	return nil
}

// withdrawAuthorities takes our authority out of the caBundle of APIServices that are not to be taken over any more.
func (r *Reconciler) withdrawAuthorities(ctx context.Context, s *reconcileState) error {
	for name, live := range s.others {
		theirs, added := lifecycle.CutAuthority(live.Spec.CABundle, s.backend.Name)
		if added.IsZero() {
			continue
		}
		gv, _ := manifests.VersionOf(name)
		if s.backend.DeletionTimestamp == nil && s.version(gv).KeepsAuthority() {
			continue
		}
		if c := s.history.contests[name]; c != nil {
			c.AuthorityAdded = false
		}
		if _, err := r.setCABundle(ctx, live, theirs); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) setCABundle(ctx context.Context, live *apiregistrationv1.APIService, caBundle []byte) (*apiregistrationv1.APIService, error) {
	changed := live.DeepCopy()
	changed.Spec.CABundle = caBundle
	if err := r.Client.Patch(ctx, changed, unchangedSince(live), client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return nil, fmt.Errorf("change the caBundle of APIService %s: %w", live.Name, err)
	}
	return changed, nil
}

// annotations returns those of an APIService with that record of its previous owner, which
// may be empty.
func annotations(record string, unverified bool) map[string]string {
	annotations := map[string]string{}
	if record != "" {
		annotations[v1alpha1.AnnotationPreviousOwner] = record
	}
	if unverified {
		annotations[v1alpha1.AnnotationUnverified] = "true"
	}
	return annotations
}

// startTrial forgets requests to an APIService that moves, or is created.
func (s *reconcileState) startTrial(name string) {
	s.history.streaks.Reset(stateKey{state: adoptionSucceeding, name: name})
	s.history.streaks.Reset(stateKey{state: adoptionFailing, name: name})
}

// observeReach does a step of the check whether every kube-apiserver reaches our pods.
func (r *Reconciler) observeReach(ctx context.Context, s *reconcileState, v *lifecycle.Version) (err error) {
	v.Reach, err = r.adoptionChecker.Check(ctx, adoption.Input{Serving: s.serving, Target: v.Identity.Target, Canary: s.canary, Now: s.now}, &s.history.adoption)
	v.Paused = s.history.adoption.Paused(s.now)
	return err
}

// reportedFailure returns why the stored status says that this generation is stalled, which
// may be the failure of an adoption.
func (s *reconcileState) reportedFailure() lifecycle.Pause {
	stalled := meta.FindStatusCondition(s.storedStatus.Conditions, v1alpha1.ConditionStalled)
	if stalled == nil || stalled.ObservedGeneration != s.backend.Generation {
		return lifecycle.Pause{}
	}
	return lifecycle.Pause{Reason: stalled.Reason, Message: stalled.Message}
}

// endTrial makes the adoption of an APIService final.
func (r *Reconciler) endTrial(ctx context.Context, s *reconcileState, live *apiregistrationv1.APIService) error {
	// Not by an apply, which keeps what an update has set.
	verified := live.DeepCopy()
	delete(verified.Annotations, v1alpha1.AnnotationUnverified)
	if err := r.Client.Patch(ctx, verified, unchangedSince(live), client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("take annotation %s off APIService %s: %w", v1alpha1.AnnotationUnverified, live.Name, err)
	}
	s.registered[live.Name] = verified
	s.history.streaks.Reset(stateKey{state: adoptionSucceeding, name: live.Name})
	// A later deletion waits again.
	s.history.streaks.Reset(stateKey{state: guestTokenFailing, name: live.Name})
	s.history.streaks.Reset(stateKey{state: previousOwnerFailing, name: live.Name})
	s.history.adoption.Succeed()
	s.requeueNow()
	return nil
}

// confirmAdoption counts requests to an APIService that is not verified yet, or contested, and
// leaves it to its previous owner, or removes it, if they fail. It reports whether it did.
func (r *Reconciler) confirmAdoption(ctx context.Context, s *reconcileState, gv schema.GroupVersion, live *apiregistrationv1.APIService, d *defect) (reverted bool, err error) {
	streaks, name, contested := s.history.streaks, live.Name, s.versions.decided[live.Name] == lifecycle.Contested
	streaks.Set(stateKey{state: adoptionSucceeding, name: name}, d == nil)
	if d != nil && d.reason == v1alpha1.ReasonAggregatorUnavailable {
		// It may be the state before the adoption: only requests count.
		d = r.requestDefect(ctx, s, gv)
	}
	v := s.version(gv)
	v.Failing = streaks.Set(stateKey{state: adoptionFailing, name: name}, d != nil && d.reason != v1alpha1.ReasonProgressing)
	decision, err := r.decide(ctx, s, v, lifecycle.NeedPreviousEndpoints)
	if err != nil {
		return false, err
	}
	back := "was taken over and is back with its previous owner"
	switch decision.Action {
	case lifecycle.Retire:
		// It was created beside versions of someone else, which clients use again.
		back = "is removed again"
		s.requestRetirement(gv, decision.Note)
	case lifecycle.Revert:
		if done, err := r.revertAdoption(ctx, s, live, contested); err != nil || !done {
			return false, err
		}
	default:
		if d != nil || !contested {
			s.requeueWithin(max(lifecycle.TrialRecheck, min(v.Failing.Elapsed/8, time.Minute)))
		}
		return false, nil
	}
	reason, cause, remedy := v1alpha1.ReasonAdoptionReverted, adoption.Describe(d.message, live), s.requiredConnections()
	if strings.Contains(cause, "x509: ") {
		remedy = fmt.Sprintf("Its caBundle does not verify the certificate of the pods: look who else writes it (kubectl get apiservice %s -o yaml --show-managed-fields)", name)
	}
	if manager, changed := v.Identity.ConflictingManager(live); contested && changed {
		reason, remedy = v1alpha1.ReasonContested, fmt.Sprintf("Field manager %q keeps changing it: take it out of what that applies, or version %s out of %s.versions", manager, gv.Version, v.Section)
	}
	why := s.history.adoption.Fail(s.now, lifecycle.Pause{Reason: reason, Message: fmt.Sprintf(
		"APIService %s %s, since requests through kube-apiserver failed: it %s. %s", name, back, cause, remedy)})
	streaks.Reset(stateKey{state: adoptionFailing, name: name})
	s.addConflict(gv, why.Reason, why.Message)
	s.setStalled(&stalledError{why.Reason, why.Message})
	s.setCondition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, why.Reason, why.Message)
	r.Events.Eventf(s.backend, live, corev1.EventTypeWarning, why.Reason, "Verify", "%s", text.Truncate(why.Message, maxNote))
	s.requeueNow()
	return true, nil
}

// previousReady reports whether the recorded owner of an APIService has ready endpoints. They are
// only asked if they may not have answered before: from the operator's network they may be out of
// reach.
func (r *Reconciler) previousReady(ctx context.Context, s *reconcileState, v *lifecycle.Version) (bool, error) {
	previous, err := lifecycle.ReadPreviousOwner(v.Live)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot revert an adoption", "apiService", v.Name())
		return false, nil
	}
	found, err := r.readService(ctx, previous.Target())
	if err != nil || found.missing != "" || len(found.endpoints) == 0 {
		return false, err
	}
	if v.Adoption == v1alpha1.AdoptionIfUnavailable {
		reason, _ := r.previousOwnerProblem(ctx, s, previous.Target(), v.GV)
		return reason == "", nil
	}
	return true, nil
}

// revertAdoption hands an APIService back to its previous owner, and reports whether it did. A
// contest goes on: the next takeover would be one more write against the same manager.
func (r *Reconciler) revertAdoption(ctx context.Context, s *reconcileState, live *apiregistrationv1.APIService, contested bool) (bool, error) {
	// The requests took seconds, in which the aggregator may have written its condition.
	now := &apiregistrationv1.APIService{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(live), now); err != nil || !lifecycle.IsUnverified(now) && !contested || !s.identity().PointsToTarget(now) {
		return false, client.IgnoreNotFound(err)
	}
	if err := r.handBack(ctx, s, now); err != nil {
		return false, err
	}
	delete(s.registered, live.Name)
	if !contested {
		delete(s.history.contests, live.Name)
	}
	return true, nil
}
