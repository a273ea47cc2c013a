// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
)

// certificates is what is known of serving's certificate. Everything that decides
// is in Secrets and APIServices, so that a new process goes on where one ended.
//
// Pods mount one Secret in every mode; only the operator writes it. So a change of
// authority, of mode too, goes in one order: clients trust the new authority, on
// every kube-apiserver; then the certificate changes; then, when every pod was seen
// to serve it, clients forget the old authority.
type certificates struct {
	// served is what pods mount; chain its certificates, nil when it is unusable.
	served servingcert.KeyPair
	chain  []*x509.Certificate
	// mounted are the authorities beside it.
	mounted servingcert.Bundle
	// trusted are all authorities that clients or pods trust now.
	trusted servingcert.Bundle
	// wanted are those that they should trust when everything is done.
	wanted servingcert.Bundle

	// authorities are the managed ones.
	authorities authorities
	// provided is the certificate that someone else keeps, when it is usable.
	provided *servingcert.KeyPair
	// problem is why it is not.
	problem *certificateProblem
	// waiting is what the replacement of authority or certificate waits for.
	waiting string
	// straggler is a pod that was asked and serves another certificate.
	straggler string
}

// certificateProblem is what someone else has to do about the certificate.
type certificateProblem struct {
	reason, message string
	// passes: it may end without anybody's doing.
	passes bool
}

// certificates finds out which certificate pods should serve and which
// authorities clients should trust. It replaces a certificate only where none is
// served; rotate does the rest, when pods were asked.
func (r *Reconciler) certificates(ctx context.Context, s *scope) error {
	if s.unmanaged {
		s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"Secrets of a namespace that the operator does not manage are not read")
		return nil
	}
	if !s.deploys() && !s.servesStill() {
		return nil
	}
	mounted, err := r.readSecret(ctx, s, s.serving.TLSSecretName())
	if err != nil {
		return err
	}
	c := &certificates{
		served:  servingcert.Provided(mounted.Data),
		mounted: servingcert.ParseBundle(mounted.Data[v1alpha1.SecretKeyCA]),
	}
	if chain, err := c.served.Chain(); err == nil {
		c.chain = chain
	}
	c.trusted = r.issuer.Valid(c.mounted.With(s.registeredBundles()...))
	if err := r.findAuthorities(ctx, s, c); err != nil {
		return err
	}
	if err := r.findWanted(ctx, s, c); err != nil {
		return err
	}
	s.certificates = c
	c.trusted = c.trusted.With(c.wanted)
	s.caBundle = c.trusted.PEM()
	switch {
	case !s.deploys():
		// Pods that serve until spec.existing does keep their certificate valid.
		defer r.judgeCertificate(s)
		return r.replaceCertificate(ctx, s)
	case s.blocked:
		return nil
	}
	if c.chain == nil {
		if c.problem != nil {
			r.judgeCertificate(s)
			return c.problem.stop()
		}
		return r.replaceCertificate(ctx, s)
	}
	return r.mountCertificate(ctx, s, c.served, c.trusted)
}

func (r *Reconciler) findWanted(ctx context.Context, s *scope, c *certificates) error {
	if s.certificateMode() != v1alpha1.CertificatesCertManager && !s.blocked && s.deploys() {
		if err := r.withdrawCertificate(ctx, s); err != nil {
			return err
		}
	}
	if s.certificateMode() == v1alpha1.CertificatesManaged {
		return r.manage(ctx, s, c)
	}
	return r.provide(ctx, s, c)
}

// stop holds the backend up.
func (p *certificateProblem) stop() error {
	if p.passes {
		return errWait
	}
	return stall(p.reason, "%s", p.message)
}

func (s *scope) certificateMode() v1alpha1.CertificateMode {
	if mode := s.spec.Serving.Certificates.Mode; mode != "" {
		return mode
	}
	return v1alpha1.CertificatesManaged
}

// mountCertificate writes what pods mount.
func (r *Reconciler) mountCertificate(ctx context.Context, s *scope, pair servingcert.KeyPair, bundle servingcert.Bundle) error {
	_, err := r.applier.Apply(ctx, s.backend.Name, manifests.TLSSecret(s.serving, pair.Certificate, pair.Key, bundle.PEM()))
	if err == nil {
		s.certificates.mounted = bundle
	}
	return err
}

// readSecret returns one of our Secrets, or an empty one. It reads around the
// cache: with what was there a moment ago, a rotation would take a step back.
func (r *Reconciler) readSecret(ctx context.Context, s *scope, name string) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: s.serving.Namespace, Name: name}
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return &corev1.Secret{}, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	case secret.Labels[v1alpha1.LabelBackend] != s.backend.Name:
		return &corev1.Secret{}, nil
	}
	return secret, nil
}

// registeredBundles are the authorities that clients trust now, by APIService.
func (s *scope) registeredBundles() []servingcert.Bundle {
	var bundles []servingcert.Bundle
	for _, name := range s.servedNames() {
		bundles = append(bundles, servingcert.ParseBundle(s.registered[name].Spec.CABundle))
	}
	return bundles
}

// servedNames are the names of the APIServices that lead to our pods, in order.
func (s *scope) servedNames() []string {
	var names []string
	for _, name := range s.registeredNames() {
		if s.leadsToServing(s.registered[name]) {
			names = append(names, name)
		}
	}
	return names
}

// certificateSecrets are the Secrets that are not leftovers.
func (s *scope) certificateSecrets() []manifests.Object {
	keep := []manifests.Object{manifests.TLSSecret(s.serving, nil, nil, nil)}
	c := s.certificates
	if s.certificateMode() == v1alpha1.CertificatesManaged || c == nil || c.signedByUs() {
		keep = append(keep, manifests.CASecret(s.serving, manifests.Authorities{}))
	}
	if s.certificateMode() == v1alpha1.CertificatesCertManager {
		keep = append(keep, manifests.IssuedSecret(s.serving))
	}
	if provided := s.spec.Serving.Certificates.Secret; provided != nil {
		// Whoever made it with our label wants it all the same.
		keep = append(keep, manifests.ProvidedSecret(s.serving, provided.Name))
	}
	return keep
}

// replaceCertificate brings the certificate that pods mount to what it should be,
// once clients trust its authority.
func (r *Reconciler) replaceCertificate(ctx context.Context, s *scope) error {
	c := s.certificates
	switch {
	case s.withoutNamespace, s.blocked && len(s.servedNames()) == 0:
		return nil // nobody needs it now
	case c.provided != nil:
		return r.takeOver(ctx, s, c)
	case c.problem != nil && !c.signedByUs():
		return nil
	}
	if err := r.promote(ctx, s, c); err != nil {
		return err
	}
	authority := c.authorities.current
	if len(authority.Authority()) == 0 {
		return nil
	}
	why := r.issuer.CheckLeaf(c.served, authority, s.serving.DNSNames())
	if why == nil {
		return nil
	}
	if c.waiting = r.untrusted(ctx, s, authority.Authority()); c.waiting != "" {
		return nil
	}
	klog.FromContext(ctx).Info("Issuing a serving certificate", "secret", s.serving.TLSSecretName(), "why", why.Error())
	leaf, err := r.issuer.Leaf(authority, s.serving.DNSNames())
	if err != nil {
		return err
	}
	return r.install(ctx, s, leaf)
}

// takeOver is replaceCertificate for a certificate that someone else keeps.
func (r *Reconciler) takeOver(ctx context.Context, s *scope, c *certificates) error {
	if c.provided.Equal(c.served) {
		return nil
	}
	chain, err := c.provided.Chain()
	if err != nil {
		return err
	}
	if c.waiting = r.untrusted(ctx, s, r.issuer.InUse(c.wanted, chain)); c.waiting != "" {
		return nil
	}
	klog.FromContext(ctx).Info("Taking over a serving certificate", "secret", s.serving.TLSSecretName(), "mode", s.certificateMode())
	return r.install(ctx, s, *c.provided)
}

// install lets pods have the certificate. Clients trust its authority.
func (r *Reconciler) install(ctx context.Context, s *scope, pair servingcert.KeyPair) error {
	c := s.certificates
	chain, err := pair.Chain()
	if err != nil {
		return fmt.Errorf("use the new serving certificate: %w", err)
	}
	if err := r.mountCertificate(ctx, s, pair, c.trusted); err != nil {
		return err
	}
	c.served, c.chain = pair, chain
	s.requeueWithin(progressMin)
	return nil
}
