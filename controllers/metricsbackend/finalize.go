// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// finalize deletes what belongs to a backend in order: versions leave discovery, confirmed,
// while pods still serve them; then all other objects; then the finalizer. It reports
// whether nothing is left.
func (r *Reconciler) finalize(ctx context.Context, s *reconcileState) (gone bool, err error) {
	left, err := r.removeObjects(ctx, s)
	switch {
	case err != nil:
		s.setDeleting("retrying: " + stableErrorMessage(err))
		return false, err
	case left != "":
		s.setDeleting(left)
		return false, nil
	}
	base := s.backend.DeepCopy()
	controllerutil.RemoveFinalizer(s.backend, v1alpha1.Finalizer)
	if err := r.Client.Patch(ctx, s.backend, unchangedSince(base), client.FieldOwner(v1alpha1.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("remove the finalizer: %w", err)
	}
	// A new account of the same name has other tokens.
	r.tokens.Forget(s.proberAccount())
	r.tokens.Forget(s.guestAccount())
	klog.FromContext(ctx).Info("Removed everything of the MetricsBackend")
	return true, nil
}

// removeObjects removes one step of everything but the finalizer, and returns what is
// left, or "".
func (r *Reconciler) removeObjects(ctx context.Context, s *reconcileState) (string, error) {
	s.namespace.unmanaged = !r.manages(s)
	exists, ends, err := r.readNamespace(ctx, s.serving.Namespace)
	if err != nil {
		return "", err
	}
	s.namespace.gone = !exists || ends
	// First, and even if the rest cannot proceed: no request should be rejected on behalf
	// of an API that is being removed.
	if err := r.applier.RemoveAdmission(ctx, s.backend.Name); err != nil {
		return "", err
	}
	if why, err := r.removeVersions(ctx, s); err != nil || why != "" {
		return why, err
	}
	left, err := r.removeChildren(ctx, s)
	if err != nil || len(left) == 0 {
		return "", err
	}
	return "removing " + left[0] + text.AndMore(len(left)-1, "object"), nil
}

// removeVersions retires every APIService of the backend (restores it, leaves it to a
// successor, or deletes it), and returns what keeps one in discovery, or "". It checks
// all versions that may have been registered, since no list contains an APIService that
// was deleted just before a restart.
func (r *Reconciler) removeVersions(ctx context.Context, s *reconcileState) (string, error) {
	if err := r.observe(ctx, s); err != nil {
		return "", err
	}
	if err := r.adoptionChecker.Remove(ctx, s.canary, s.backend.Name, &s.history.adoption); err != nil {
		return "", err
	}
	names := s.registeredNames()
	for _, known := range s.storedStatus.APIServices {
		if !known.State.IsPending() {
			names = append(names, known.Name)
		}
	}
	for _, name := range names {
		s.apiServices[name] = v1alpha1.APIServiceStatus{
			Name: name, State: v1alpha1.APIServiceRetiring, Message: "the MetricsBackend is being deleted",
		}
	}
	return r.retireVersions(ctx, s, s.possiblyRegistered())
}

// possiblyRegistered returns the names of all versions that may be in discovery,
// including pending and desired ones: a process may have registered them and ended before
// it wrote the status.
func (s *reconcileState) possiblyRegistered() []string {
	all := slices.Concat(s.sortedAPIServices(), s.storedStatus.APIServices)
	for _, gv := range s.versions.desired {
		all = append(all, v1alpha1.APIServiceStatus{Name: apiServiceName(gv)})
	}
	var names []string
	for _, service := range all {
		if _, ok := manifests.VersionOf(service.Name); ok && !slices.Contains(names, service.Name) {
			names = append(names, service.Name)
		}
	}
	return names
}

// removeChildren deletes all objects but APIServices, and returns those that it found. It
// leaves out a namespace that is gone or terminating: the namespace controller deletes
// its objects, and the operator may have no permissions there any more.
func (r *Reconciler) removeChildren(ctx context.Context, s *reconcileState) ([]string, error) {
	var namespace string
	var kept []manifests.Object
	if s.namespace.usable() {
		namespace = s.serving.Namespace
		var err error
		// Before its Secret, which cert-manager would create again.
		if kept, err = r.certificateReconciler.DeleteCertManagerCertificate(ctx, s.serving, s.history.certificates); err != nil {
			return nil, err
		}
	}
	return r.applier.RemoveAll(ctx, s.backend.Name, namespace, kept...)
}

func (s *reconcileState) setDeleting(message string) {
	meta.RemoveStatusCondition(&s.backend.Status.Conditions, v1alpha1.ConditionStalled)
	s.setCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "the MetricsBackend is being deleted")
	s.setCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, message)
	s.setCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonDeleting, message)
	s.backend.Status.RegisteredVersions = ""
	s.requeueWithin(min(max(s.now.Sub(s.backend.DeletionTimestamp.Time)/8, progressMin), progressMax))
}

// retireAllPause is the time between two attempts of RetireAll.
const retireAllPause = 100 * time.Millisecond

// RetireAll retires every APIService that points to serving pods in the operator's own
// namespace, without the order that a single backend keeps; not those of backends that
// another operator manages. It is for an operator that stops because that namespace is
// being deleted, with all pods in it: an APIService without pods blocks the deletion of
// every namespace in the cluster. Adopted ones are restored if the previous owner has ready
// endpoints; all others are deleted. It continues after errors, retries until none is left
// or ctx ends, and then returns the error of the last attempt.
func (r *Reconciler) RetireAll(ctx context.Context) error {
	var failed error
	_ = wait.PollUntilContextCancel(ctx, retireAllPause, true, func(ctx context.Context) (bool, error) {
		err := r.retireAllOnce(ctx)
		if err == nil || failed == nil || ctx.Err() == nil {
			// An error that ctx caused is less useful than the one before.
			failed = err
		}
		return err == nil, nil
	})
	return failed
}

func (r *Reconciler) retireAllOnce(ctx context.Context) error {
	var list v1alpha1.MetricsBackendList
	if err := r.APIReader.List(ctx, &list); err != nil {
		return fmt.Errorf("list MetricsBackends: %w", err)
	}
	var errs []error
	for i := range list.Items {
		s := r.newState(&list.Items[i])
		if owner := s.storedStatus.Installation.Namespace; s.serving.Namespace != r.Namespace || owner != "" && owner != r.Namespace {
			continue // its pods, or its operator, are elsewhere
		}
		if err := r.observe(ctx, s); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := r.adoptionChecker.Remove(ctx, s.canary, s.backend.Name, &s.history.adoption); err != nil {
			errs = append(errs, err)
		}
		// Nothing can be created in a terminating namespace.
		s.namespace.gone = true
		for _, name := range s.registeredNames() {
			if !s.identity().PointsToPods(s.registered[name]) {
				continue // its target stays
			}
			gv, _ := manifests.VersionOf(name)
			d, err := r.advance(ctx, s, &lifecycle.Version{GV: gv, Identity: s.identity(), Retires: true, Known: sets.New(lifecycle.NeedSuccessor)})
			switch {
			case err != nil:
				errs = append(errs, err)
			case d.Waits != "":
				errs = append(errs, errors.New(d.Waits))
			}
		}
	}
	return errors.Join(errs...)
}
