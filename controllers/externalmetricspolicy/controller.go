// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package externalmetricspolicy reports in the status of each ExternalMetricsPolicy whether
// its rules are valid: an invalid one denies every query that reaches it.
package externalmetricspolicy

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/crdready"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Name is the controller's name in logs and metrics.
const Name = "externalmetricspolicy"

// maxMessage bounds a condition's message, in bytes: a policy may have a hundred bad rules.
const maxMessage = 4096

// Reconciler writes the status of ExternalMetricsPolicies.
type Reconciler struct {
	// Client reads from a cache.
	Client client.Client
	Clock  clock.Clock
}

// SetupWithManager adds the controller to the manager. It starts once the CRD is installed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		logged := klog.NewContext(ctx, klog.FromContext(ctx).WithValues("controller", Name))
		if !crdready.Await(logged, mgr.GetClient(), r.Clock, &v1alpha1.ExternalMetricsPolicy{}) {
			return nil
		}
		// Without the permission to list policies this waits, while a controller would end the operator.
		switch _, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.ExternalMetricsPolicy{}); {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the operator ends
		case err != nil:
			return fmt.Errorf("watch ExternalMetricsPolicies: %w", err)
		}
		return ctrl.NewControllerManagedBy(mgr).
			Named(Name).
			// Ignore our own status writes.
			For(&v1alpha1.ExternalMetricsPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Complete(r)
	}))
	if err != nil {
		return fmt.Errorf("set up controller %s: %w", Name, err)
	}
	return nil
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &v1alpha1.ExternalMetricsPolicy{}
	if err := r.Client.Get(ctx, req.NamespacedName, policy); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	base := policy.DeepCopy()
	r.setStatus(policy)
	if equality.Semantic.DeepEqual(base.Status, policy.Status) {
		return ctrl.Result{}, nil
	}
	// With the resourceVersion that was read: a newer spec is reconciled next.
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, policy, patch, client.FieldOwner(v1alpha1.FieldOwner))
	if err != nil && !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("write the status of ExternalMetricsPolicy %s: %w", req.Name, err)
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) setStatus(policy *v1alpha1.ExternalMetricsPolicy) {
	status := &policy.Status
	status.ObservedGeneration = policy.Generation
	set := func(kind string, is metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: is, Reason: reason, Message: message,
			ObservedGeneration: policy.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()).Rfc3339Copy(),
		})
	}
	errs := v1alpha1.ValidateExternalMetricsPolicy(&policy.Spec)
	if len(errs) == 0 {
		set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "all rules can be read")
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionStalled)
		return
	}
	message := "a rule that cannot be read denies what gets to it; correct the policy: " + errs.ToAggregate().Error()
	message = text.Truncate(message, maxMessage)
	set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalid, message)
	// Nothing but a new spec mends it.
	set(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalid, message)
}
