// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// loadProvided reads the certificate of cert-manager or the user. While it is unusable,
// pods keep the one that they have, and clients what they trust.
func (r *Reconciler) loadProvided(ctx context.Context, s *reconcileState, c *certificates) error {
	secret, problem, err := r.providedSecret(ctx, s)
	if err != nil {
		return err
	}
	if problem == nil {
		problem = r.checkProvided(s, secret)
	}
	if problem != nil {
		c.problem, c.wanted = problem, c.trusted
		return nil
	}
	pair := servingcert.Provided(secret.Data)
	c.provided = &pair
	c.wanted = r.issuer.Valid(servingcert.ParseBundle(secret.Data[v1alpha1.SecretKeyCA]))
	return nil
}

func (r *Reconciler) providedSecret(ctx context.Context, s *reconcileState) (*corev1.Secret, *certificateProblem, error) {
	if s.certificateMode() == v1alpha1.CertificatesCertManager {
		return r.issuedSecret(ctx, s)
	}
	name := s.spec.Serving.Certificates.Secret.Name
	if name == s.serving.TLSSecretName() || name == s.serving.CASecretName() || name == s.serving.IssuedSecretName() {
		return nil, &certificateProblem{reason: v1alpha1.ReasonInvalid, message: fmt.Sprintf(
			"Secret %s of spec.serving.certificates.secret is the operator's own: give yours another name", name)}, nil
	}
	key := client.ObjectKey{Namespace: s.serving.Namespace, Name: name}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &certificateProblem{reason: v1alpha1.ReasonSecretMissing, message: fmt.Sprintf(
			"Secret %s of spec.serving.certificates.secret does not exist: create it", key)}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get Secret %s of spec.serving.certificates: %w", key, err)
	}
	return secret, nil, nil
}

// checkProvided returns why the certificate in the Secret is unusable, or nil.
func (r *Reconciler) checkProvided(s *reconcileState, secret *corev1.Secret) *certificateProblem {
	unusable := r.issuer.CheckProvided(secret.Data, s.serving.ServerName())
	if unusable == nil {
		return nil
	}
	reason := v1alpha1.ReasonCertificateInvalid
	switch unusable.Cause {
	case servingcert.Expired:
		reason = v1alpha1.ReasonCertificateExpired
	case servingcert.Mismatch:
		reason = v1alpha1.ReasonCertificateMismatch
	case servingcert.Damaged:
	}
	hint := ""
	if s.certificateMode() == v1alpha1.CertificatesCertManager && len(secret.Data[v1alpha1.SecretKeyCA]) == 0 {
		hint = " (an issuer that gives no authority, as ACME does, cannot be used: take one of kind CA or Vault)"
	}
	return &certificateProblem{reason: reason, message: fmt.Sprintf(
		"the certificate in Secret %s/%s cannot be used: %v%s", secret.Namespace, secret.Name, unusable, hint)}
}
