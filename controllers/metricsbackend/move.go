// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// A backend moves from the namespace of one operator to that of another like to another
// target: pods are deployed and probed, then each APIService is updated in place, and then
// what served before is removed. Until then the ServiceAccounts of both namespaces are
// bound.

// moveState is of a move from the namespace of another operator.
type moveState struct {
	// from is that namespace, or empty.
	from string
	// gone: it does not exist, or is being deleted with the pods in it.
	gone bool
}

// observeMove determines whether pods can still answer in the previous namespace.
func (r *Reconciler) observeMove(ctx context.Context, s *reconcileState) error {
	if s.move.from == "" {
		return nil
	}
	exists, ends, err := readNamespace(ctx, r.Live, s.move.from)
	s.move.gone = err == nil && (!exists || ends)
	return err
}

// stillRoutedToPrevious is stillRouted for the pods in the previous namespace.
func (r *Reconciler) stillRoutedToPrevious(ctx context.Context, s *reconcileState, name string) string {
	if s.move.from == "" || s.move.gone {
		return ""
	}
	return r.stillRoutedTo(ctx, s, stateKey{state: pointedAway, name: name, detail: s.move.from}, s.pointsToPrevious)
}

// leave ends a move once no request reaches the previous namespace: it removes what served
// there, and the next pass unbinds its ServiceAccounts.
func (r *Reconciler) leave(ctx context.Context, s *reconcileState) error {
	if s.move.from == "" || s.registered == nil {
		return nil
	}
	if why := r.previousNeeded(ctx, s); why != "" {
		s.setMoving("the pods there go on serving: " + why)
		return nil
	}
	left, err := r.removeFromPrevious(ctx, s)
	switch {
	case apierrors.IsForbidden(err):
		if why, err := r.leftByHand(ctx, s); err != nil || why != "" {
			if why != "" {
				s.setStalled(&stalledError{v1alpha1.ReasonMoveIncomplete, why})
			}
			return err
		}
	case err != nil:
		return err
	case len(left) > 0:
		s.setMoving("removing " + left[0] + andMore(len(left)-1, "object"))
		s.requeueWithin(progressMin)
		return nil
	}
	klog.FromContext(ctx).Info("The move is finished", "from", s.move.from)
	s.backend.Status.Installation.MovingFrom = ""
	s.setMoving("its ServiceAccounts are no longer bound in a moment")
	s.requeueNow()
	return nil
}

// previousNeeded returns why pods in the previous namespace may still get requests, or "".
func (r *Reconciler) previousNeeded(ctx context.Context, s *reconcileState) string {
	for _, name := range s.registeredNames() {
		if s.pointsToPrevious(s.registered[name]) {
			return name + " points to them until ours serve all that it has to"
		}
	}
	for _, name := range s.registeredNames() {
		if why := r.stillRoutedToPrevious(ctx, s, name); why != "" {
			return why
		}
	}
	return ""
}

// removeFromPrevious removes the backend's objects in the previous namespace, and returns
// those that it found. There is nothing to do in a namespace that is gone or terminating.
func (r *Reconciler) removeFromPrevious(ctx context.Context, s *reconcileState) ([]string, error) {
	if s.move.from == "" || s.move.gone {
		return nil, nil
	}
	there := s.serving
	there.Namespace = s.move.from
	// Before its Secret, which cert-manager would create again.
	kept, err := r.certificateReconciler.DeleteCertManagerCertificate(ctx, there, s.history.certificates)
	if err != nil {
		return nil, err
	}
	return r.applier.RemoveFrom(ctx, s.backend.Name, s.move.from, kept...)
}

// leftByHand returns what a user has to do in the previous namespace, where the operator
// lacks permissions, or "". It can read the Service anywhere.
func (r *Reconciler) leftByHand(ctx context.Context, s *reconcileState) (string, error) {
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: s.move.from, Name: s.serving.Name()}
	err := r.Live.Get(ctx, key, service)
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get Service %s: %w", key, err)
	case service.Labels[v1alpha1.LabelBackend] != s.backend.Name:
		return "", nil
	}
	var resources []string
	for _, kind := range inventory.Namespaced() {
		resource, _ := meta.UnsafeGuessKindToResource(kind.GroupVersionKind)
		resources = append(resources, resource.Resource)
	}
	if s.spec.Serving.Certificates.Mode == v1alpha1.CertificatesCertManager {
		resources = append(resources, "certificates."+manifests.CertManagerGroup)
	}
	return fmt.Sprintf("the move from namespace %[1]s is done, but the operator may not delete everything that served there: grant it the Role there "+
		"(kubectl create rolebinding metrics-backend-move -n %[1]s --role=metrics-backend-operator-serving --serviceaccount=%[2]s:metrics-backend-operator; "+
		"docs/lifecycle.md#moving-to-another-namespace), or kubectl delete -n %[1]s -l %[3]s=%[4]s %[5]s",
		s.move.from, r.Namespace, v1alpha1.LabelBackend, s.backend.Name, strings.Join(resources, ",")), nil
}

// setMoving reports a move that goes on, unless ServingReady has a problem of its own.
func (s *reconcileState) setMoving(why string) {
	if s.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue {
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProgressing,
			fmt.Sprintf("moving from namespace %s: %s", s.move.from, why))
	}
}
