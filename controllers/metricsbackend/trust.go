// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// rotate replaces the certificate when its time has come, and has clients forget
// authorities that no pod needs any more. The APIServices are written by register.
func (r *Reconciler) rotate(ctx context.Context, s *scope) error {
	c := s.certificates
	if c == nil || s.withoutNamespace || !s.deploys() {
		return nil
	}
	defer r.judgeCertificate(s)
	if err := r.replaceCertificate(ctx, s); err != nil {
		return err
	}
	needed := r.narrow(s, c)
	s.caBundle = needed.PEM()
	if s.blocked || len(c.chain) == 0 {
		return nil
	}
	if c.problem != nil && !c.problem.passes {
		// What runs goes on, with everything else that the spec says.
		s.stall(&stalledError{c.problem.reason, c.problem.message})
	}
	if needed.Equal(c.mounted) {
		return nil
	}
	for _, bundle := range s.registeredBundles() {
		if !bundle.Equal(needed) {
			// The Secret is last: with it a new process knows what was trusted.
			return nil
		}
	}
	return r.mountCertificate(ctx, s, c.served, needed)
}

// narrow returns the authorities that have to be trusted still: the wanted ones,
// and those of what any pod serves or is about to.
func (r *Reconciler) narrow(s *scope, c *certificates) servingcert.Bundle {
	chains := [][]*x509.Certificate{c.chain}
	unknown := ""
	for _, p := range s.servingPods() {
		chain := p.chain()
		switch {
		case len(chain) > 0:
			chains = append(chains, chain)
			if len(c.chain) > 0 && !chain[0].Equal(c.chain[0]) {
				c.straggler = p.Name
			}
		case p.DeletionTimestamp != nil && !s.now.Before(p.DeletionTimestamp.Time):
			// It had to be gone: on a node that was lost, pods stay for ever.
		default:
			unknown = p.Name
		}
	}
	needed := c.wanted.With(r.issuer.InUse(c.trusted, chains...))
	if unknown != "" {
		needed = c.wanted.With(c.trusted)
	}
	if c.waiting != "" {
		return needed
	}
	switch {
	case len(c.authorities.next.Authority()) > 0 || needed.Equal(c.wanted) && c.straggler == "" && c.trusted.Equal(c.wanted):
	case c.straggler != "":
		c.waiting = fmt.Sprintf("pod %s does not serve the new certificate yet: its kubelet brings it within about a minute and a half", c.straggler)
	case unknown != "" && !c.trusted.Equal(c.wanted):
		c.waiting = fmt.Sprintf("pod %s was not seen to serve the new certificate yet", unknown)
	case !c.trusted.Equal(c.wanted):
		c.waiting = "the old authority is being taken out"
	}
	return needed
}

// servingPods are all that serve, or that may have mounted a certificate.
func (s *scope) servingPods() []*pod {
	pods := s.runningPods()
	for i := range s.pods {
		if p := &s.pods[i]; p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" {
			pods = append(pods, p)
		}
	}
	return pods
}

// chain is the certificate that the pod was seen to serve; nil when it is unknown.
func (p *pod) chain() []*x509.Certificate {
	var untrusted *servingclient.UntrustedError
	switch {
	case errors.As(p.err, &untrusted):
		return untrusted.Chain
	case p.answer != nil:
		return p.answer.Chain
	}
	return nil
}

// untrusted is why it is not certain yet that every client trusts the authorities,
// or empty.
func (r *Reconciler) untrusted(ctx context.Context, s *scope, authorities servingcert.Bundle) string {
	c := s.certificates
	same := r.issuer.Verify(c.chain, authorities, "") == nil
	names := slices.DeleteFunc(s.servedNames(), func(name string) bool { return r.trustsNothing(s, s.registered[name], same) })
	trusted := stateKey{state: authorityTrusted, name: authorities.Fingerprint()}
	for _, name := range names {
		if !trusts(s.registered[name], authorities) {
			// Each authority passes through here before its certificate is served,
			// also one that was trusted before and forgotten.
			s.history.streaks.Reset(trusted)
			return fmt.Sprintf("APIService %s does not hold the new authority yet", name)
		}
	}
	if len(names) == 0 || same {
		return "" // nobody asks, or the present certificate is of this authority too
	}
	wait, why := aggregatorSoak, "every kube-apiserver has the new authority"
	for _, name := range names {
		lagging, unreachable, err := r.Aggregator.Lagging(ctx, name, func(service *apiregistrationv1.APIService) bool {
			return trusts(service, authorities)
		})
		switch {
		case err != nil:
			klog.FromContext(ctx).Info("Cannot ask each kube-apiserver for an APIService, waiting instead", "apiService", name, "soak", discoverySoak, "err", err)
			wait, why = discoverySoak, "the kube-apiservers' own addresses cannot be read"
		case len(lagging) > 0:
			s.history.streaks.Reset(trusted)
			return fmt.Sprintf("kube-apiserver %s does not have the new authority of APIService %s yet", strings.Join(lagging, ", "), name)
		case len(unreachable) > 0:
			wait, why = discoverySoak, "kube-apiserver "+strings.Join(unreachable, ", ")+" cannot be asked for the new authority"
		}
	}
	if !s.waited(trusted, wait) {
		return fmt.Sprintf("%s, this waits %s", why, wait)
	}
	return ""
}

// trustsNothing tells whether nothing gets worse for who comes through the
// APIService, whichever certificate is served: it is not verified, or already
// refused, and would hold up the others for as long as it is contested or the
// backend stalled. For another authority, one that register is about to correct
// counts all the same: a kube-apiserver may not have seen that it was changed.
func (r *Reconciler) trustsNothing(s *scope, service *apiregistrationv1.APIService, sameAuthority bool) bool {
	chain := s.certificates.chain
	if !service.Spec.InsecureSkipTLSVerify &&
		(len(chain) == 0 || r.issuer.Verify(chain, servingcert.ParseBundle(service.Spec.CABundle), "") == nil) {
		return false
	}
	if sameAuthority || s.blocked {
		return true
	}
	_, contended := s.rivalOf(service, s.target())
	return contended && s.contest(service.Name).paused(s.now)
}

func trusts(service *apiregistrationv1.APIService, authorities servingcert.Bundle) bool {
	return servingcert.ParseBundle(service.Spec.CABundle).Contains(authorities)
}
