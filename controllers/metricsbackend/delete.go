// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// remove takes a backend apart in order: its versions leave discovery, confirmed,
// while pods still serve them; then everything else; the finalizer last.
func (r *Reconciler) remove(ctx context.Context, s *scope) error {
	if !controllerutil.ContainsFinalizer(s.backend, v1alpha1.Finalizer) {
		s.gone = true
		return nil
	}
	if err := r.findNamespace(ctx, s); err != nil {
		return s.deletionFailed(err)
	}
	// First, and not held up by what holds up the rest: nobody should be refused in the
	// name of an API that is about to go.
	if err := r.applier.RemoveAdmission(ctx, s.backend.Name); err != nil {
		return s.deletionFailed(err)
	}
	held, err := r.removeVersions(ctx, s)
	if err != nil {
		return s.deletionFailed(err)
	}
	if held != "" {
		s.markDeleting(held)
		return nil
	}
	left, err := r.removeChildren(ctx, s)
	if err != nil {
		return s.deletionFailed(err)
	}
	if len(left) > 0 {
		s.markDeleting("removing " + left[0] + others(len(left)-1, "object"))
		return nil
	}
	base := s.backend.DeepCopy()
	controllerutil.RemoveFinalizer(s.backend, v1alpha1.Finalizer)
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, s.backend, patch, client.FieldOwner(v1alpha1.FieldOwner)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer: %w", err)
	}
	// A later account of the same name is another one.
	r.tokens.Forget(s.proberAccount())
	r.tokens.Forget(s.guestAccount())
	klog.FromContext(ctx).Info("Removed everything of the MetricsBackend")
	s.gone = true
	return nil
}

// removeVersions lets go of every APIService of the backend (it is handed back, left
// to an heir, or deleted), and returns what keeps one of them in discovery. It asks
// for all that may have been registered: an APIService that was deleted just before a
// restart is in no list any more.
func (r *Reconciler) removeVersions(ctx context.Context, s *scope) (string, error) {
	if err := r.observe(ctx, s); err != nil {
		return "", err
	}
	retiring := func(name string) {
		s.apiServices[name] = v1alpha1.APIServiceStatus{
			Name: name, State: v1alpha1.APIServiceRetiring, Message: "the MetricsBackend is being deleted",
		}
	}
	for _, name := range s.registeredNames() {
		retiring(name)
	}
	for _, known := range s.before.APIServices {
		if known.State != v1alpha1.APIServicePending {
			retiring(known.Name)
		}
	}
	var gone []schema.GroupVersion
	var moved []string
	for _, name := range s.perhapsRegistered() {
		gv, ok := versionOf(name)
		if !ok {
			continue
		}
		if heir, err := r.awaitHeir(ctx, s, gv); err != nil || heir != "" {
			return heir, err
		}
		holder, why, err := r.release(ctx, s, name)
		if err != nil {
			return "", err
		}
		switch holder {
		case us:
			return "APIService " + name + " still exists: " + why, nil
		case nobody:
			gone = append(gone, gv)
		case someoneElse:
			moved = append(moved, name)
		}
	}
	for _, name := range moved {
		if held, err := r.leadsToUsStill(ctx, s, name); err != nil || held != "" {
			return held, err
		}
		delete(s.apiServices, name)
	}
	if len(gone) == 0 {
		return "", nil
	}
	lingers := r.lingers(ctx, s, gone)
	if lingers == "" {
		return "", nil
	}
	var versions []string
	for _, gv := range gone {
		versions = append(versions, apiServiceName(gv))
	}
	return strings.Join(versions, ", ") + ": " + lingers, nil
}

// perhapsRegistered names all versions that may be in discovery. Those that are
// pending, or only desired, are among them: a process that ended before it wrote
// its status may have registered them, and another one deleted them since.
func (s *scope) perhapsRegistered() []string {
	var names []string
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, service := range s.sortedAPIServices() {
		add(service.Name)
	}
	for _, known := range s.before.APIServices {
		add(known.Name)
	}
	for _, gv := range s.desired {
		add(apiServiceName(gv))
	}
	return names
}

// findNamespace looks whether there still is a serving namespace to work in.
func (r *Reconciler) findNamespace(ctx context.Context, s *scope) error {
	s.unmanaged = !slices.Contains(r.Namespaces, s.serving.Namespace)
	live := metadata(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.Live.Get(ctx, client.ObjectKey{Name: s.serving.Namespace}, live)
	switch {
	case apierrors.IsNotFound(err):
		s.withoutNamespace = true
		return nil
	case err != nil:
		return fmt.Errorf("get namespace %s: %w", s.serving.Namespace, err)
	}
	s.withoutNamespace = live.DeletionTimestamp != nil
	return nil
}

// removeChildren removes everything but APIServices, and returns what it found.
// A namespace that is being deleted, or gone, sees to its own objects, and the
// operator may have no rights there any more.
func (r *Reconciler) removeChildren(ctx context.Context, s *scope) ([]string, error) {
	namespace := s.serving.Namespace
	if s.withoutNamespace || s.unmanaged {
		namespace = ""
	}
	if namespace != "" {
		// Before its Secret, which cert-manager would make again.
		if err := r.withdrawCertificate(ctx, s); err != nil {
			return nil, err
		}
	}
	return r.applier.RemoveAll(ctx, s.backend.Name, namespace)
}

func (s *scope) markDeleting(message string) {
	meta.RemoveStatusCondition(&s.backend.Status.Conditions, v1alpha1.ConditionStalled)
	s.mark(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "the MetricsBackend is being deleted")
	s.mark(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonDeleting, message)
	s.mark(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonDeleting, message)
	s.backend.Status.RegisteredVersions = ""
	s.requeueWithin(min(max(s.now.Sub(s.backend.DeletionTimestamp.Time)/8, progressMin), progressMax))
}

// deletionFailed shows what holds up the deletion, and retries.
func (s *scope) deletionFailed(err error) error {
	s.markDeleting("retrying: " + stableMessage(err))
	return err
}

// retireAllPause is between two attempts of RetireAll.
const retireAllPause = 100 * time.Millisecond

// RetireAll lets go of every APIService that leads to serving pods in the operator's
// own namespace, at once, without the order that a single backend keeps: for an
// operator that ends because that namespace is being deleted, and all pods with it.
// One that was taken over goes back to an owner that has ready endpoints; the others
// are deleted. An APIService that outlives its pods blocks the deletion of every
// namespace in the cluster, and nobody comes after this process: so it goes on with
// the others when one fails, and tries until none is left or ctx ends. Then it
// returns why the last attempt failed.
func (r *Reconciler) RetireAll(ctx context.Context) error {
	var failed error
	_ = wait.PollUntilContextCancel(ctx, retireAllPause, true, func(ctx context.Context) (bool, error) {
		err := r.retireAllOnce(ctx)
		if err == nil || failed == nil || ctx.Err() == nil {
			// What an attempt fails with that ctx cut short says nothing.
			failed = err
		}
		return err == nil, nil
	})
	return failed
}

func (r *Reconciler) retireAllOnce(ctx context.Context) error {
	var list v1alpha1.MetricsBackendList
	if err := r.Live.List(ctx, &list); err != nil {
		return fmt.Errorf("list MetricsBackends: %w", err)
	}
	var errs []error
	for i := range list.Items {
		s := r.newScope(&list.Items[i])
		if s.serving.Namespace != r.Namespace {
			continue
		}
		if err := r.observe(ctx, s); err != nil {
			errs = append(errs, err)
			continue
		}
		// Nothing can be made in a namespace that is being deleted.
		s.withoutNamespace = true
		for _, name := range s.registeredNames() {
			if !s.leadsToServing(s.registered[name]) {
				continue // what it leads to lives on
			}
			whose, why, err := r.release(ctx, s, name)
			switch {
			case err != nil:
				errs = append(errs, err)
			case whose == us:
				errs = append(errs, fmt.Errorf("APIService %s still exists: %s", name, why))
			}
		}
	}
	return errors.Join(errs...)
}
