// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// Pod is a pod that serves, or may have mounted a certificate.
type Pod struct {
	Name string
	// Chain is what it serves, or nil if unknown.
	Chain []*x509.Certificate
	// Overdue: it is past its deadline to terminate. On a lost node, pods stay Running for
	// ever.
	Overdue bool
}

// Rotate replaces the certificate of deployed pods if it has to, and removes authorities
// from CABundle that no pod needs any more. It returns why a provided certificate cannot
// be used, if the user must act; everything that runs continues.
func (c *Certificate) Rotate(ctx context.Context, pods []Pod, blocked bool) (*servingcert.UnusableError, error) {
	if c.r == nil {
		return nil, nil
	}
	c.in.Blocked = blocked
	defer c.setCondition()
	if err := c.replace(ctx); err != nil {
		return nil, err
	}
	needed := c.neededAuthorities(pods)
	c.CABundle = needed.PEM()
	if blocked || len(c.chain) == 0 {
		return nil, nil
	}
	var stalled *servingcert.UnusableError
	if c.unusable != nil && !c.unusable.Transient {
		stalled = c.unusable
	}
	if needed.Equal(c.mounted) || slices.ContainsFunc(c.registeredBundles(), func(b servingcert.Bundle) bool { return !b.Equal(needed) }) {
		// The Secret is last: it tells a new process what was trusted.
		return stalled, nil
	}
	return stalled, c.mount(ctx, c.served, needed)
}

// neededAuthorities returns the authorities that must stay trusted: the wanted ones, and
// those of every certificate that a pod serves or may serve soon.
func (c *Certificate) neededAuthorities(pods []Pod) servingcert.Bundle {
	chains, unknown := [][]*x509.Certificate{c.chain}, ""
	for _, p := range pods {
		switch {
		case len(p.Chain) > 0:
			chains = append(chains, p.Chain)
			if len(c.chain) > 0 && !p.Chain[0].Equal(c.chain[0]) {
				c.outdatedPod = p.Name
			}
		case !p.Overdue:
			unknown = p.Name
		}
	}
	needed := c.wanted.With(c.r.Issuer.InUse(c.trusted, chains...))
	if unknown != "" {
		needed = c.wanted.With(c.trusted)
	}
	removed := c.trusted.Equal(c.wanted)
	switch {
	case c.waiting != "", len(c.authorities.Next.Authority()) > 0:
	case c.outdatedPod != "":
		c.waiting = fmt.Sprintf("pod %s does not serve the new certificate yet: its kubelet brings it within about a minute and a half", c.outdatedPod)
	case removed:
	case unknown != "":
		c.waiting = fmt.Sprintf("pod %s was not seen to serve the new certificate yet", unknown)
	default:
		c.waiting = "the old authority is being removed"
	}
	return needed
}

// untrustedReason returns why a client may not trust the authorities yet, or "".
func (c *Certificate) untrustedReason(ctx context.Context, authorities servingcert.Bundle) string {
	same := c.r.Issuer.Verify(c.chain, authorities, "") == nil
	services := slices.DeleteFunc(slices.Clone(c.in.APIServices), func(service *apiregistrationv1.APIService) bool {
		return c.verifiesNothing(service, same)
	})
	trusted := trustedPrefix + StateKey(authorities.Fingerprint())
	for _, service := range services {
		if !trusts(service, authorities) {
			// Every authority passes here before its certificate is served, also one that
			// was trusted before and removed.
			c.in.Streaks.Reset(trusted)
			return fmt.Sprintf("APIService %s does not hold the new authority yet", service.Name)
		}
	}
	if len(services) == 0 || same {
		return "" // there are no clients, or the mounted certificate is of this authority too
	}
	wait, why := aggregator.RoutingDelay, "every kube-apiserver has the new authority"
	for _, service := range services {
		lagging, unreachable, err := c.r.Aggregator.Lagging(ctx, service.Name, func(known *apiregistrationv1.APIService) bool {
			return trusts(known, authorities)
		})
		switch {
		case err != nil:
			klog.FromContext(ctx).Info("Cannot ask each kube-apiserver for an APIService, waiting instead", "apiService", service.Name, "delay", aggregator.DiscoveryDelay, "err", err)
			wait, why = aggregator.DiscoveryDelay, "the kube-apiservers' own addresses cannot be read"
		case len(lagging) > 0:
			c.in.Streaks.Reset(trusted)
			return fmt.Sprintf("kube-apiserver %s does not have the new authority of APIService %s yet", strings.Join(lagging, ", "), service.Name)
		case len(unreachable) > 0:
			wait, why = aggregator.DiscoveryDelay, "kube-apiserver "+strings.Join(unreachable, ", ")+" cannot be asked for the new authority"
		}
	}
	if left := wait - c.in.Streaks.Set(trusted, true).Elapsed; left > 0 {
		c.requeueWithin(left)
		return fmt.Sprintf("%s, this waits %s", why, wait)
	}
	return ""
}

// verifiesNothing reports whether a new certificate makes nothing worse for clients of
// the APIService: it is not verified, or already rejected. Such an APIService would
// otherwise block the others while it is contested or the backend stalled. For another
// authority, one that is about to be corrected counts nevertheless, since a
// kube-apiserver may not have seen the change.
func (c *Certificate) verifiesNothing(service *apiregistrationv1.APIService, sameAuthority bool) bool {
	if !service.Spec.InsecureSkipTLSVerify &&
		(len(c.chain) == 0 || c.r.Issuer.Verify(c.chain, servingcert.ParseBundle(service.Spec.CABundle), "") == nil) {
		return false
	}
	return sameAuthority || c.in.Blocked || c.in.Contested(service, c.CABundle)
}

func trusts(service *apiregistrationv1.APIService, authorities servingcert.Bundle) bool {
	return servingcert.ParseBundle(service.Spec.CABundle).Contains(authorities)
}

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
