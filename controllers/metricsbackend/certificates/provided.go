// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

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
func (c *Certificate) loadProvided(ctx context.Context) error {
	secret, unusable, err := c.providedSecret(ctx)
	if err != nil {
		return err
	}
	if c.unusable = unusable; unusable == nil {
		c.unusable = c.checkProvided(secret)
	}
	if c.unusable != nil {
		c.wanted = c.trusted
		return nil //nolint:nilerr // The phase reports it.
	}
	c.provided = new(servingcert.Provided(secret.Data))
	c.wanted = servingcert.ParseBundle(secret.Data[v1alpha1.SecretKeyCA])
	return nil
}

func (c *Certificate) providedSecret(ctx context.Context) (*corev1.Secret, *servingcert.UnusableError, error) {
	if c.mode() == v1alpha1.CertificatesCertManager {
		return c.issuedSecret(ctx)
	}
	serving := c.in.Serving
	name := serving.Spec.Certificates.SecretRef.Name
	if name == serving.TLSSecretName() || name == serving.CASecretName() || name == serving.IssuedSecretName() {
		return nil, &servingcert.UnusableError{Reason: v1alpha1.ReasonInvalid, Message: fmt.Sprintf(
			"Secret %s of spec.serving.certificates.secretRef is the operator's own: give yours another name", name)}, nil
	}
	key := client.ObjectKey{Namespace: serving.Namespace, Name: name}
	secret := &corev1.Secret{}
	err := c.r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &servingcert.UnusableError{Reason: v1alpha1.ReasonSecretMissing, Message: fmt.Sprintf(
			"Secret %s of spec.serving.certificates.secretRef does not exist: create it", key)}, nil
	case err != nil:
		return nil, nil, fmt.Errorf("get Secret %s of spec.serving.certificates: %w", key, err)
	}
	return secret, nil, nil
}

// checkProvided returns why the certificate in the Secret is unusable, or nil.
func (c *Certificate) checkProvided(secret *corev1.Secret) *servingcert.UnusableError {
	unusable := c.r.Issuer.CheckProvided(secret.Data, c.in.Serving.ServerName())
	if unusable == nil {
		return nil
	}
	hint := ""
	if c.mode() == v1alpha1.CertificatesCertManager && len(secret.Data[v1alpha1.SecretKeyCA]) == 0 {
		hint = " (an issuer that gives no authority, as ACME does, cannot be used: take one of kind CA or Vault)"
	}
	unusable.Message = fmt.Sprintf("the certificate in Secret %s/%s cannot be used: %v%s", secret.Namespace, secret.Name, unusable, hint)
	return unusable
}
