// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// rotate replaces the certificate if it has to, and removes authorities that no pod needs
// any more. register writes the APIServices.
func (r *Reconciler) rotate(ctx context.Context, s *reconcileState) error {
	c := s.certificates
	if c == nil || s.namespaceGone || !s.deploys() {
		return nil
	}
	defer r.setCertificatesValid(s)
	if err := r.replaceCertificate(ctx, s); err != nil {
		return err
	}
	needed := r.neededAuthorities(s, c)
	s.caBundle = needed.PEM()
	if s.blocked || len(c.chain) == 0 {
		return nil
	}
	if c.problem != nil && !c.problem.transient {
		// Everything that runs continues.
		s.setStalled(&stalledError{c.problem.reason, c.problem.message})
	}
	if needed.Equal(c.mounted) {
		return nil
	}
	for _, bundle := range s.registeredBundles() {
		if !bundle.Equal(needed) {
			// The Secret is last: it tells a new process what was trusted.
			return nil
		}
	}
	return r.mountCertificate(ctx, s, c.served, needed)
}

// servedChains returns the certificates that pods serve, a pod whose certificate is
// unknown, and one that serves another certificate than mounted.
func servedChains(all []*pod, mounted []*x509.Certificate, now time.Time) (chains [][]*x509.Certificate, unknown, outdated string) {
	for _, p := range all {
		chain := p.chain()
		switch {
		case len(chain) > 0:
			chains = append(chains, chain)
			if len(mounted) > 0 && !chain[0].Equal(mounted[0]) {
				outdated = p.Name
			}
		case p.DeletionTimestamp != nil && !now.Before(p.DeletionTimestamp.Time):
			// Past its deadline: on a lost node, pods stay Running for ever.
		default:
			unknown = p.Name
		}
	}
	return chains, unknown, outdated
}

// neededAuthorities returns the authorities that must stay trusted: the wanted ones, and
// those of every certificate that a pod serves or may serve soon.
func (r *Reconciler) neededAuthorities(s *reconcileState, c *certificates) servingcert.Bundle {
	chains, unknown, outdated := servedChains(s.servingPods(), c.chain, s.now)
	c.outdatedPod = outdated
	needed := c.wanted.With(r.issuer.InUse(c.trusted, append(chains, c.chain)...))
	if unknown != "" {
		needed = c.wanted.With(c.trusted)
	}
	removed := c.trusted.Equal(c.wanted)
	switch {
	case c.waiting != "", len(c.authorities.next.Authority()) > 0:
	case outdated != "":
		c.waiting = fmt.Sprintf("pod %s does not serve the new certificate yet: its kubelet brings it within about a minute and a half", outdated)
	case removed:
	case unknown != "":
		c.waiting = fmt.Sprintf("pod %s was not seen to serve the new certificate yet", unknown)
	default:
		c.waiting = "the old authority is being removed"
	}
	return needed
}

// servingPods returns all pods that serve, or may have mounted a certificate.
func (s *reconcileState) servingPods() []*pod {
	pods := s.runningPods()
	for i := range s.pods {
		if p := &s.pods[i]; p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "" {
			pods = append(pods, p)
		}
	}
	return pods
}

// awaitTrust returns why some client may not trust the authorities yet, or "".
func (r *Reconciler) awaitTrust(ctx context.Context, s *reconcileState, authorities servingcert.Bundle) string {
	c := s.certificates
	same := r.issuer.Verify(c.chain, authorities, "") == nil
	names := slices.DeleteFunc(s.servingAPIServices(), func(name string) bool { return r.verifiesNothing(s, s.registered[name], same) })
	trusted := stateKey{state: authorityTrusted, name: authorities.Fingerprint()}
	for _, name := range names {
		if !trusts(s.registered[name], authorities) {
			// Every authority passes here before its certificate is served, also one that
			// was trusted before and removed.
			s.history.streaks.Reset(trusted)
			return fmt.Sprintf("APIService %s does not hold the new authority yet", name)
		}
	}
	if len(names) == 0 || same {
		return "" // there are no clients, or the mounted certificate is of this authority too
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

// verifiesNothing reports whether a new certificate makes nothing worse for clients of
// the APIService: it is not verified, or already rejected. Such an APIService would
// otherwise block the others while it is contested or the backend stalled. For another
// authority, one that register is about to correct counts nevertheless, since a
// kube-apiserver may not have seen the change.
func (r *Reconciler) verifiesNothing(s *reconcileState, service *apiregistrationv1.APIService, sameAuthority bool) bool {
	chain := s.certificates.chain
	if !service.Spec.InsecureSkipTLSVerify &&
		(len(chain) == 0 || r.issuer.Verify(chain, servingcert.ParseBundle(service.Spec.CABundle), "") == nil) {
		return false
	}
	if sameAuthority || s.blocked {
		return true
	}
	_, contested := s.conflictingManager(service, s.target())
	return contested && s.contest(service.Name).paused(s.now)
}

func trusts(service *apiregistrationv1.APIService, authorities servingcert.Bundle) bool {
	return servingcert.ParseBundle(service.Spec.CABundle).Contains(authorities)
}
