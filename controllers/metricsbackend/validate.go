// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// validate checks what the CRD's schema cannot: that serving accepts the spec, and that
// the spec fits the cluster.
func (r *Reconciler) validate(ctx context.Context, s *reconcileState) error {
	if err := r.validateNamespace(ctx, s); err != nil {
		return err
	}
	// Serving only logs what it rejects, and keeps its settings.
	if errs := v1alpha1.Validate(&s.spec); len(errs) > 0 {
		return newStalledError(v1alpha1.ReasonInvalid,
			"the spec cannot be used, and the settings before it stay: correct it with kubectl edit metricsbackend %s: %s",
			s.backend.Name, errs.ToAggregate())
	}
	if !s.deploys() {
		return validateExisting(s)
	}
	return r.validateReferences(ctx, s)
}

func validateExisting(s *reconcileState) error {
	target := s.target()
	if target.Namespace == s.serving.Namespace && target.Name == s.serving.Name() {
		return newStalledError(v1alpha1.ReasonInvalid,
			"spec.existing names Service %s, which the operator itself makes for this MetricsBackend: take spec.existing out, or name another Service", target)
	}
	return nil
}

func (r *Reconciler) validateNamespace(ctx context.Context, s *reconcileState) error {
	name := s.serving.Namespace
	if !r.manages(s) {
		s.namespace.unmanaged = true
		return newStalledError(v1alpha1.ReasonNamespaceNotManaged,
			"the operator does not manage namespace %q, only %s: add it to the operator's --namespaces and grant its Role there "+
				"(config/rbac/serving-namespace), or delete this MetricsBackend and create it without spec.serving.namespace",
			name, strings.Join(r.Namespaces, ", "))
	}
	exists, ends, err := r.readNamespace(ctx, name)
	switch {
	case err != nil:
		return err
	case !exists:
		// No pod can serve: a registered version would only break discovery.
		s.setNamespaceGone()
		return newStalledError(v1alpha1.ReasonNamespaceMissing,
			"namespace %q does not exist: create it (kubectl create namespace %s)", name, name)
	case ends:
		// A registered version without pods would block the deletion of every namespace,
		// of this one too.
		s.setNamespaceGone()
		return newStalledError(v1alpha1.ReasonNamespaceTerminating, "%s", terminatingMessage(name))
	}
	return nil
}

// readNamespace reports whether a namespace exists, and whether it is being deleted. It reads around the
// cache: one that starts with a list of a kube-apiserver that is behind lacks a new namespace, and all
// versions would be retired.
func (r *Reconciler) readNamespace(ctx context.Context, name string) (exists, ends bool, err error) {
	namespace := inventory.Prototype(namespaceKind)
	err = r.APIReader.Get(ctx, client.ObjectKey{Name: name}, namespace)
	switch {
	case apierrors.IsNotFound(err):
		return false, false, nil
	case err != nil:
		return false, false, fmt.Errorf("get namespace %s: %w", name, err)
	}
	return true, namespace.GetDeletionTimestamp() != nil, nil
}

// setNamespaceGone retires what our pods serve. Versions served from other namespaces
// stay.
func (s *reconcileState) setNamespaceGone() {
	s.namespace.gone = true
	if s.deploys() {
		s.versions.desired = nil
	}
}

func terminatingMessage(namespace string) string {
	return fmt.Sprintf("namespace %q is being deleted: delete this MetricsBackend too, or create the namespace again once it is gone", namespace)
}

// validateReferences checks what the kubelet would only report in a pod's events, while the
// rollout waits, and what kube-apiserver would only tell clients of custom metrics.
func (r *Reconciler) validateReferences(ctx context.Context, s *reconcileState) error {
	if s.backend.Serves(manifests.CustomMetricsGroup) {
		role := inventory.Prototype(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
		err := r.APIReader.Get(ctx, client.ObjectKey{Name: manifests.ObjectsRole}, role)
		if s.serving.ObjectsRoleMissing = apierrors.IsNotFound(err); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get ClusterRole %s: %w", manifests.ObjectsRole, err)
		}
	}
	for _, reference := range s.spec.Serving.ImagePullSecrets {
		key := client.ObjectKey{Namespace: s.serving.Namespace, Name: reference.Name}
		err := r.APIReader.Get(ctx, key, inventory.Prototype(corev1.SchemeGroupVersion.WithKind("Secret")))
		switch {
		case apierrors.IsNotFound(err):
			return newStalledError(v1alpha1.ReasonSecretMissing,
				"Secret %s of spec.serving.imagePullSecrets does not exist: create it, or take it out of the spec", key)
		case err != nil:
			return fmt.Errorf("get Secret %s: %w", key, err)
		}
	}
	return nil
}
