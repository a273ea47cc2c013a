// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

var certificateKind = schema.GroupVersionKind{
	Group: manifests.CertManagerGroup, Version: manifests.CertManagerVersion, Kind: manifests.CertificateKind,
}

// issuedSecret requests a certificate from cert-manager and returns its Secret.
func (r *Reconciler) issuedSecret(ctx context.Context, s *reconcileState) (*corev1.Secret, *certificateProblem, error) {
	if !s.blocked && s.deploys() {
		_, err := r.applier.Apply(ctx, s.backend.Name, manifests.Certificate(s.serving, s.spec.Serving.Certificates.CertManager.IssuerRef))
		switch {
		case meta.IsNoMatchError(err):
			return nil, &certificateProblem{reason: v1alpha1.ReasonCertManagerMissing, message: "cert-manager is not installed " +
				"(there is no Certificate in API group cert-manager.io): install it, or choose another spec.serving.certificates.mode"}, nil
		case err != nil:
			return nil, nil, err
		}
		s.history.streaks.Observe(stateKey{state: certificateRequested}, true)
	}
	secret, err := r.readSecret(ctx, s, s.serving.IssuedSecretName())
	if err != nil {
		return nil, nil, err
	}
	if secret.Name == "" {
		why, err := r.notIssued(ctx, s)
		return nil, &certificateProblem{reason: v1alpha1.ReasonProgressing, transient: true, message: fmt.Sprintf(
			"cert-manager has not issued the certificate yet: kubectl describe -n %s certificate %s%s", s.serving.Namespace, s.serving.Name(), why)}, err
	}
	return secret, nil, nil
}

// notIssued returns the message of the Certificate's Ready condition.
func (r *Reconciler) notIssued(ctx context.Context, s *reconcileState) (string, error) {
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(certificateKind)
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}, request)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get Certificate %s: %w", s.serving.Name(), err)
	}
	conditions, _, _ := unstructured.NestedSlice(request.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			if message, ok := c["message"].(string); ok {
				return ": " + message, nil
			}
		}
	}
	return "", nil
}

// deleteCertificateRequest deletes our Certificate. Its kind may not exist, so it is not
// watched: the read happens once in a process, and after each request.
func (r *Reconciler) deleteCertificateRequest(ctx context.Context, s *reconcileState) error {
	requested, withdrawn := stateKey{state: certificateRequested}, stateKey{state: certificateWithdrawn}
	if s.history.streaks.Get(withdrawn).Count > 0 && s.history.streaks.Get(requested).Count == 0 {
		return nil
	}
	request := metadata(certificateKind)
	key := client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}
	err := r.Live.Get(ctx, key, request)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
	case apierrors.IsForbidden(err):
		// Roles from before cert-manager mode existed: the operator never created one.
	case err != nil:
		return fmt.Errorf("get Certificate %s: %w", key, err)
	case request.Labels[v1alpha1.LabelBackend] == s.backend.Name && request.DeletionTimestamp == nil:
		err := r.Client.Delete(ctx, request, client.Preconditions{UID: ptr.To(request.UID)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Certificate %s: %w", key, err)
		}
	}
	s.history.streaks.Reset(requested)
	s.history.streaks.Observe(withdrawn, true)
	return nil
}
