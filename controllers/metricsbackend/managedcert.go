// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// authorities are the operator's own, without unusable ones.
type authorities struct {
	// current signs certificates, and every client trusts it.
	current servingcert.KeyPair
	// next replaces current once every client trusts it.
	next servingcert.KeyPair
	// rotated is the value of spec.serving.certificates.rotate that was last applied.
	rotated string
}

func (a authorities) bundle() servingcert.Bundle {
	return a.current.Authority().With(a.next.Authority())
}

// signedByUs reports whether pods mount a certificate of the current authority.
func (c *certificates) signedByUs() bool {
	authority := c.authorities.current.Authority()
	return len(authority) > 0 && len(c.chain) > 0 && c.chain[0].CheckSignatureFrom(authority[0]) == nil
}

// findAuthorities reads the authorities from their Secret.
func (r *Reconciler) findAuthorities(ctx context.Context, s *reconcileState, c *certificates) error {
	secret, err := r.readSecret(ctx, s, s.serving.CASecretName())
	if err != nil {
		return err
	}
	current := servingcert.Provided(secret.Data)
	if why := r.issuer.CheckAuthority(current); why == nil {
		c.authorities.current = current
	} else if secret.Name != "" && len(current.Certificate) > 0 {
		klog.FromContext(ctx).Info("The certificate authority cannot be used", "secret", secret.Name, "why", why.Error())
	}
	next := servingcert.KeyPair{
		Certificate: secret.Data[v1alpha1.SecretKeyNextCertificate],
		Key:         secret.Data[v1alpha1.SecretKeyNextPrivateKey],
	}
	if r.issuer.CheckAuthority(next) == nil {
		c.authorities.next = next
	}
	c.authorities.rotated = secret.Annotations[v1alpha1.AnnotationRotated]
	return nil
}

// loadManaged creates the first authority, and the next one when it is due.
func (r *Reconciler) loadManaged(ctx context.Context, s *reconcileState, c *certificates) error {
	if !s.blocked && s.deploys() {
		if err := r.ensureAuthorities(ctx, s, c); err != nil {
			return err
		}
	}
	c.wanted = c.authorities.bundle()
	if len(c.wanted) == 0 {
		c.wanted = c.trusted
	}
	return nil
}

func (r *Reconciler) ensureAuthorities(ctx context.Context, s *reconcileState, c *certificates) error {
	known := &c.authorities
	if why := r.rotationDue(s, c); why != "" {
		klog.FromContext(ctx).Info("Making a certificate authority", "secret", s.serving.CASecretName(), "why", why)
		made, err := r.issuer.Authority(s.serving.Name())
		if err != nil {
			return err
		}
		known.rotated = s.spec.Serving.Certificates.Rotate
		if len(s.servingAPIServices()) == 0 && c.chain == nil {
			known.current = made // there are no clients yet
		} else {
			known.next = made
		}
	}
	return r.storeAuthorities(ctx, s, *known)
}

// rotationDue returns why another authority is created now, or "". Rotations do not
// overlap: until one is finished, the old authority may be in use.
func (r *Reconciler) rotationDue(s *reconcileState, c *certificates) string {
	known, requested := c.authorities, s.spec.Serving.Certificates.Rotate
	current := known.current.Authority()
	switch {
	case len(known.next.Authority()) > 0:
		return ""
	case len(current) == 0:
		return "there is none that can be used"
	case !c.trusted.Equal(current) || !c.signedByUs():
		return ""
	case requested != "" && requested != known.rotated:
		return "spec.serving.certificates.rotate changed"
	}
	if why := r.issuer.CheckAuthorityAge(known.current); why != nil {
		return why.Error()
	}
	return ""
}

func (r *Reconciler) storeAuthorities(ctx context.Context, s *reconcileState, a authorities) error {
	_, err := r.applier.Apply(ctx, s.backend.Name, manifests.CASecret(s.serving, manifests.Authorities{
		Certificate: a.current.Certificate, Key: a.current.Key,
		NextCertificate: a.next.Certificate, NextKey: a.next.Key,
		Rotated: a.rotated,
	}))
	return err
}

// promoteNext makes the next authority the current one, once clients trust it.
func (r *Reconciler) promoteNext(ctx context.Context, s *reconcileState, c *certificates) error {
	next := c.authorities.next
	if len(next.Authority()) == 0 {
		return nil
	}
	if c.waiting = r.awaitTrust(ctx, s, next.Authority()); c.waiting != "" {
		return nil
	}
	promoted := authorities{current: next, rotated: c.authorities.rotated}
	if err := r.storeAuthorities(ctx, s, promoted); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Every kube-apiserver trusts the new certificate authority", "secret", s.serving.CASecretName())
	c.authorities = promoted
	c.wanted = promoted.bundle()
	return nil
}
