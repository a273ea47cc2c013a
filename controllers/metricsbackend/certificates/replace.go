// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// replace replaces the mounted certificate if it has to, once clients trust the new
// authority.
func (c *Certificate) replace(ctx context.Context) error {
	switch {
	case c.in.NamespaceGone, c.in.Blocked && len(c.in.APIServices) == 0:
		return nil // not needed now
	case c.provided != nil:
		return c.installProvided(ctx)
	case c.unusable != nil && !c.signedByUs():
		return nil
	}
	if err := c.promoteNext(ctx); err != nil {
		return err
	}
	authority, serving := c.authorities.Current, c.in.Serving
	if len(authority.Authority()) == 0 {
		return nil
	}
	why := c.r.Issuer.CheckLeaf(c.served, authority, serving.DNSNames())
	if why == nil {
		return nil
	}
	if c.waiting = c.untrustedReason(ctx, authority.Authority()); c.waiting != "" {
		return nil
	}
	klog.FromContext(ctx).Info("Issuing a serving certificate", "secret", serving.TLSSecretName(), "why", why.Error())
	leaf, err := c.r.Issuer.Leaf(authority, serving.DNSNames())
	if err != nil {
		return err
	}
	return c.install(ctx, leaf)
}

// installProvided is replace for a provided certificate.
func (c *Certificate) installProvided(ctx context.Context) error {
	if c.provided.Equal(c.served) {
		return nil
	}
	chain, err := c.provided.Chain()
	if err != nil {
		return err
	}
	if c.waiting = c.untrustedReason(ctx, c.r.Issuer.InUse(c.wanted, chain)); c.waiting != "" {
		return nil
	}
	klog.FromContext(ctx).Info("Taking over a serving certificate", "secret", c.in.Serving.TLSSecretName(), "mode", c.mode())
	return c.install(ctx, *c.provided)
}

// install mounts a certificate whose authority clients trust.
func (c *Certificate) install(ctx context.Context, pair servingcert.KeyPair) error {
	chain, err := pair.Chain()
	if err != nil {
		return fmt.Errorf("use the new serving certificate: %w", err)
	}
	if err := c.mount(ctx, pair, c.trusted); err != nil {
		return err
	}
	c.served, c.chain = pair, chain
	c.requeueWithin(recheck)
	return nil
}
