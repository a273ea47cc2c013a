// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/installation"
)

const (
	// reportInterval limits how often an excluded operator writes the same report: another
	// one may disagree on whether it runs.
	reportInterval = 10 * time.Minute
	// ownerTimeout is how long the owner may leave a report unread.
	ownerTimeout = 2 * time.Minute
)

// manages reports whether the operator may deploy into the backend's serving namespace.
func (r *Reconciler) manages(s *reconcileState) bool {
	return slices.Contains(r.Namespaces, s.serving.Namespace)
}

// claim records this operator as the one that manages the backend. Nothing of the backend
// but its finalizer is written before: of two operators that claim it, one gets a conflict.
// The conditions of another operator end with the same write: by Stalled a third operator
// may claim the backend, too.
func (r *Reconciler) claim(ctx context.Context, s *reconcileState, decision installation.Decision) (ctrl.Result, error) {
	klog.FromContext(ctx).Info("Managing the MetricsBackend from now on", "before", decision.Owner)
	s.backend.Status.Installation = v1alpha1.InstallationStatus{Namespace: r.Namespace}
	s.requeueNow()
	var err error
	if s.backend.DeletionTimestamp.IsZero() {
		s.initialize()
		if decision.Owner != "" && decision.Owner != r.Namespace {
			s.setReconciling(metav1.ConditionUnknown, v1alpha1.ReasonProgressing,
				fmt.Sprintf("the operator in namespace %s manages this MetricsBackend now, and the one in namespace %s did before", r.Namespace, decision.Owner))
		}
		err = r.addFinalizer(ctx, s)
	}
	return r.finish(ctx, s, err, nil)
}

// leaveToOwner changes nothing of a backend that another operator manages. An excluded
// operator reports itself.
func (r *Reconciler) leaveToOwner(ctx context.Context, s *reconcileState, decision installation.Decision) (ctrl.Result, error) {
	r.Directory.Forget(s.backend.Name)
	forgetMetrics(s.backend.Name)
	unchanged := ctrl.Result{RequeueAfter: resync}
	if decision.Standing != installation.Excluded {
		return unchanged, nil
	}
	message := r.report(ctx, s, decision)
	if message == "" {
		return unchanged, nil
	}
	err := r.writeStatus(ctx, s)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		s.requeueNow()
		return ctrl.Result{RequeueAfter: s.outcome.requeueAfter}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	klog.FromContext(ctx).Info("Another operator manages the MetricsBackend, leaving it as it is", "operator", decision.Owner)
	s.history.reported, s.history.reportedAt = message, s.now
	r.recordTransitions(s)
	return unchanged, nil
}

// report sets what an excluded operator has to write, and returns its message, or "" if
// there is nothing to write. The owner makes a condition of status.installation.other, so
// that the conditions have one writer. The excluded operator sets it, once, for an owner
// that does not: one that does not run, or has lost its permissions to another
// installation's ClusterRoleBinding.
func (r *Reconciler) report(ctx context.Context, s *reconcileState, decision installation.Decision) string {
	recorded := &s.backend.Status.Installation
	announced := recorded.Other == r.Namespace
	// An owner that has seen the report does not set Ready.
	unread := announced && s.condition(v1alpha1.ConditionReady).Status == metav1.ConditionTrue
	ignored := s.history.streaks.Set(stateKey{state: reportIgnored}, unread).Elapsed >= ownerTimeout
	running := r.installation.Running(ctx, decision.Owner)
	stalled, message := s.condition(v1alpha1.ConditionStalled), installation.Message(decision.Owner, r.Namespace, running)
	switch {
	case recorded.Other != "" && !announced && r.installation.Running(ctx, recorded.Other),
		announced && stalled.Reason == v1alpha1.ReasonOtherInstallation && stalled.Message == message,
		announced && running && !ignored,
		message == s.history.reported && s.now.Sub(s.history.reportedAt) < reportInterval && !ignored:
		return ""
	}
	recorded.Other = r.Namespace
	if announced || !running {
		s.backend.Status.ObservedGeneration = s.backend.Generation
		s.setStalledCondition(&stalledError{v1alpha1.ReasonOtherInstallation, message})
	}
	return message
}
