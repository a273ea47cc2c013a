// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// restorePrevious points an adopted APIService back to the Service of its previous owner,
// in one write, if that still serves the version. It returns whether it did, or what it
// waits for; if neither, the APIService is to be deleted.
func (r *Reconciler) restorePrevious(ctx context.Context, s *reconcileState, service *apiregistrationv1.APIService) (restored bool, waits string, err error) {
	gv, ok := versionOf(service.Name)
	if _, adopted := service.Annotations[v1alpha1.AnnotationPreviousOwner]; !adopted || !ok {
		return false, "", nil
	}
	impossible := func(err error) (bool, string, error) {
		klog.FromContext(ctx).Error(err, "Cannot hand an APIService back, deleting it", "apiService", service.Name)
		r.Events.Eventf(s.backend, service, corev1.EventTypeWarning, "HandBackImpossible", "Retire", "%s",
			text.Truncate(fmt.Sprintf("APIService %s is deleted, not handed back: %v", service.Name, err), maxNote))
		return false, "", nil
	}
	previous, err := readPreviousOwner(service)
	if err != nil {
		return impossible(err)
	}
	target := previous.target()
	if target.Namespace == s.serving.Namespace && target.Name == s.serving.Name() {
		// It would point to the pods that are being removed.
		return impossible(fmt.Errorf("annotation %s names Service %s, which is this MetricsBackend's own", v1alpha1.AnnotationPreviousOwner, target))
	}
	reason, transient := r.previousOwnerProblem(ctx, s, target, gv)
	switch failing := (stateKey{state: previousOwnerFailing, name: service.Name}); {
	case reason == "":
	case transient && s.history.streaks.Observe(failing, true).Elapsed < previousOwnerGrace:
		return false, fmt.Sprintf("this waits up to %s for Service %s, to which it is handed back: %s", previousOwnerGrace, target, reason), nil
	default:
		s.history.streaks.Reset(failing)
		klog.FromContext(ctx).Info("Not handing an APIService back, deleting it", "apiService", service.Name, "service", target.String(), "why", reason)
		r.Events.Eventf(s.backend, service, corev1.EventTypeWarning, "PreviousOwnerSilent", "Retire", "%s",
			text.Truncate(fmt.Sprintf("APIService %s is deleted, not handed back to Service %s: %s", service.Name, target, reason), maxNote))
		return false, "", nil
	}
	err = r.handBack(ctx, s, service, previous)
	if apierrors.IsForbidden(err) {
		// Only another release of the operator may write this version. Any may be
		// deleted, and one that stays would block everything else.
		return impossible(err)
	}
	return err == nil, "", err
}

// handBack restores the recorded state of an APIService, in one write.
func (r *Reconciler) handBack(ctx context.Context, s *reconcileState, service *apiregistrationv1.APIService, previous *previousOwnerState) error {
	target := previous.target()
	klog.FromContext(ctx).Info("Handing an APIService back", "apiService", service.Name, "service", target.String())
	previous.restore(service)
	// With the resourceVersion that was read, so that no concurrent change is lost.
	if err := r.Client.Update(ctx, service, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("hand APIService %s back to Service %s: %w", service.Name, target, err)
	}
	s.history.streaks.Reset(stateKey{state: previousOwnerFailing, name: service.Name})
	s.history.streaks.Reset(stateKey{state: guestTokenFailing, name: service.Name})
	r.Events.Eventf(s.backend, service, corev1.EventTypeNormal, "VersionHandedBack", "Retire", "%s",
		fmt.Sprintf("handed APIService %s back to Service %s", service.Name, target))
	return nil
}

// previousOwnerProblem returns why the target does not serve the version, or "". transient
// reports that the problem may end by itself, so that the caller waits up to
// previousOwnerGrace.
func (r *Reconciler) previousOwnerProblem(ctx context.Context, s *reconcileState, target manifests.Target, gv schema.GroupVersion) (reason string, transient bool) {
	found, err := r.readService(ctx, target)
	switch {
	case err != nil:
		return fmt.Sprintf("it cannot be read: %s", stableErrorMessage(err)), true
	case found.missing:
		return found.why, false
	case len(found.endpoints) == 0:
		// In a terminating namespace there is no time to wait.
		return "it has no ready endpoint", !s.namespace.gone
	}
	account, token, err := r.guestToken(ctx, s)
	// A deletion that has waited for an answer does not wait for the token again.
	waited := max(s.history.streaks.Get(stateKey{state: previousOwnerFailing, name: apiServiceName(gv)}).Elapsed,
		s.history.streaks.Observe(stateKey{state: guestTokenFailing, name: apiServiceName(gv)}, err != nil).Elapsed)
	switch {
	case err != nil && s.namespace.usable() && waited < previousOwnerGrace:
		return fmt.Sprintf("it cannot be asked: %s", stableErrorMessage(err)), true
	case err != nil:
		// Without a token no probe is possible. Ready endpoints must do; they served this
		// version before.
		klog.FromContext(ctx).Info("Cannot ask the previous owner, there is no token for it; its endpoints are ready", "service", target.String(), "err", err)
		return "", false
	}
	r.probeEndpoints(ctx, found, account, token, []schema.GroupVersion{gv})
	notServing, failed := found.notServing(gv), found.firstFailed()
	switch {
	case len(notServing) > 0:
		return fmt.Sprintf("endpoint %s does not serve it", notServing[0]), false
	case failed != nil && !found.anyServes(gv) && s.namespace.gone && found.anyUnauthorized():
		// The account is gone, and its token invalid: as without an account.
		return "", false
	case failed != nil && !found.anyServes(gv):
		return fmt.Sprintf("endpoint %s cannot be asked: %v", failed.address, failed.err), !s.namespace.gone
	}
	// An endpoint that does not answer now is no reason to remove the version.
	return "", false
}

// isRepointed reports whether another manager pointed an APIService with our label to a
// Service that is neither ours nor spec.existing. An apply by others leaves our label.
func (s *reconcileState) isRepointed(live *apiregistrationv1.APIService) bool {
	if s.pointsToServing(live) || !s.deploys() && pointsTo(live, s.target()) {
		return false
	}
	for _, field := range [][]string{serviceNamespaceField, serviceNameField} {
		if _, changed := changedBy(live, field); changed {
			return true
		}
	}
	return false
}

// disown removes the operator's labels and annotations from an APIService that another
// manager repointed. Deleting or restoring it would undo that manager's change.
func (r *Reconciler) disown(ctx context.Context, s *reconcileState, live *apiregistrationv1.APIService) error {
	updated := live.DeepCopy()
	delete(updated.Annotations, v1alpha1.AnnotationPreviousOwner)
	delete(updated.Annotations, v1alpha1.AnnotationUnverified)
	delete(updated.Labels, v1alpha1.LabelInstallation)
	for key, value := range s.serving.Labels() {
		maps.DeleteFunc(updated.Labels, func(k, v string) bool { return k == key && v == value })
	}
	klog.FromContext(ctx).Info("Leaving an APIService to the manager that repointed it", "apiService", live.Name, "service", describeTarget(live))
	// With the resourceVersion that was read, so that no concurrent change is lost.
	if err := r.Client.Update(ctx, updated, client.FieldOwner(v1alpha1.FieldOwner)); err != nil {
		return fmt.Errorf("take the operator's labels off APIService %s: %w", live.Name, err)
	}
	r.Events.Eventf(s.backend, live, corev1.EventTypeNormal, "VersionLeft", "Retire", "%s",
		text.Truncate(fmt.Sprintf("left APIService %s to the manager that pointed it to %s", live.Name, describeTarget(live)), maxNote))
	return nil
}
