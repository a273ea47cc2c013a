// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// signedByUs reports whether pods mount a certificate of the current authority.
func (c *Certificate) signedByUs() bool {
	authority := c.authorities.Current.Authority()
	return len(authority) > 0 && len(c.chain) > 0 && c.chain[0].CheckSignatureFrom(authority[0]) == nil
}

// findAuthorities reads the authorities from their Secret.
func (c *Certificate) findAuthorities(ctx context.Context) error {
	secret, err := c.readSecret(ctx, c.in.Serving.CASecretName())
	if err != nil {
		return err
	}
	current := servingcert.Provided(secret.Data)
	if why := c.r.Issuer.CheckAuthority(current); why == nil {
		c.authorities.Current = current
	} else if secret.Name != "" && len(current.Certificate) > 0 {
		klog.FromContext(ctx).Info("The certificate authority cannot be used", "secret", secret.Name, "why", why.Error())
	}
	next := servingcert.KeyPair{
		Certificate: secret.Data[v1alpha1.SecretKeyNextCertificate],
		Key:         secret.Data[v1alpha1.SecretKeyNextPrivateKey],
	}
	if c.r.Issuer.CheckAuthority(next) == nil {
		c.authorities.Next = next
	}
	c.authorities.Rotated = secret.Annotations[v1alpha1.AnnotationRotated]
	return nil
}

// loadManaged creates the first authority, and the next one when it is due.
func (c *Certificate) loadManaged(ctx context.Context) error {
	if !c.in.Blocked && c.in.Deploys {
		if err := c.ensureAuthorities(ctx); err != nil {
			return err
		}
	}
	c.wanted = c.authorities.Current.Authority().With(c.authorities.Next.Authority())
	if len(c.wanted) == 0 {
		c.wanted = c.trusted
	}
	return nil
}

func (c *Certificate) ensureAuthorities(ctx context.Context) error {
	known := &c.authorities
	if why := c.rotationDue(); why != "" {
		klog.FromContext(ctx).Info("Making a certificate authority", "secret", c.in.Serving.CASecretName(), "why", why)
		made, err := c.r.Issuer.Authority(c.in.Serving.Name())
		if err != nil {
			return err
		}
		known.Rotated = c.in.RotationRequest
		if len(c.in.APIServices) == 0 && c.chain == nil {
			known.Current = made // there are no clients yet
		} else {
			known.Next = made
		}
	}
	return c.storeAuthorities(ctx, *known)
}

// rotationDue returns why another authority is created now, or "". Rotations do not
// overlap: until one is finished, the old authority may be in use.
func (c *Certificate) rotationDue() string {
	known, requested := c.authorities, c.in.RotationRequest
	current := known.Current.Authority()
	switch {
	case len(known.Next.Authority()) > 0:
		return ""
	case len(current) == 0:
		return "there is none that can be used"
	case !c.trusted.Equal(current) || !c.signedByUs():
		return ""
	case requested != "" && requested != known.Rotated:
		return "the annotation " + v1alpha1.AnnotationRotate + " changed"
	}
	if why := c.r.Issuer.CheckAuthorityAge(known.Current); why != nil {
		return why.Error()
	}
	return ""
}

func (c *Certificate) storeAuthorities(ctx context.Context, a manifests.Authorities) error {
	_, err := c.r.Applier.Apply(ctx, c.in.Serving.Backend, manifests.CASecret(c.in.Serving, a))
	return err
}

// promoteNext makes the next authority the current one, once clients trust it.
func (c *Certificate) promoteNext(ctx context.Context) error {
	next := c.authorities.Next
	if len(next.Authority()) == 0 {
		return nil
	}
	if c.waiting = c.untrustedReason(ctx, next.Authority()); c.waiting != "" {
		return nil
	}
	promoted := manifests.Authorities{Current: next, Rotated: c.authorities.Rotated}
	if err := c.storeAuthorities(ctx, promoted); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Every kube-apiserver trusts the new certificate authority", "secret", c.in.Serving.CASecretName())
	c.authorities, c.wanted = promoted, next.Authority()
	return nil
}
