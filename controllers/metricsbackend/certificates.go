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

// certificates is the state of the serving certificate. All decisions rest on Secrets and
// APIServices, so that a new process continues where the last one ended.
//
// Pods mount one Secret in every mode, and only the operator writes it. A change of the
// authority, or of the mode, has one order: every kube-apiserver trusts the new
// authority, then the certificate changes, then, when every pod serves it, the old
// authority is removed.
type certificates struct {
	// served is the mounted certificate; chain is nil if it is unusable.
	served servingcert.KeyPair
	chain  []*x509.Certificate
	// mounted is the bundle in the mounted Secret.
	mounted servingcert.Bundle
	// trusted holds all authorities that clients or pods trust now.
	trusted servingcert.Bundle
	// wanted holds the authorities that remain at the end.
	wanted servingcert.Bundle

	// authorities are the operator's own.
	authorities authorities
	// provided is the usable certificate of cert-manager or the user, if any.
	provided *servingcert.KeyPair
	// problem is why there is no usable provided certificate.
	problem *certificateProblem
	// waiting is what the replacement of the authority or certificate waits for.
	waiting string
	// outdatedPod is a pod that serves another certificate than the mounted one.
	outdatedPod string
}

// certificateProblem is why a provided certificate cannot be used.
type certificateProblem struct {
	reason, message string
	// transient: it may end without user action.
	transient bool
}

// certificates determines which certificate pods should serve and which authorities
// clients should trust. It replaces the certificate only if none is usable; rotate does
// so otherwise, after pods were probed.
func (r *Reconciler) certificates(ctx context.Context, s *reconcileState) error {
	if s.namespaceUnmanaged {
		s.setCondition(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"Secrets of a namespace that the operator does not manage are not read")
		return nil
	}
	if !s.deploys() && !s.anyPointsToServing() {
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
	if err := r.loadWanted(ctx, s, c); err != nil {
		return err
	}
	s.certificates = c
	c.trusted = c.trusted.With(c.wanted)
	s.caBundle = c.trusted.PEM()
	switch {
	case !s.deploys():
		// Pods that serve until spec.existing takes over keep a valid certificate.
		defer r.setCertificatesValid(s)
		return r.replaceCertificate(ctx, s)
	case s.blocked:
		return nil
	}
	if c.chain == nil {
		if c.problem != nil {
			r.setCertificatesValid(s)
			return c.problem.asError()
		}
		return r.replaceCertificate(ctx, s)
	}
	return r.mountCertificate(ctx, s, c.served, c.trusted)
}

func (r *Reconciler) loadWanted(ctx context.Context, s *reconcileState, c *certificates) error {
	if s.certificateMode() != v1alpha1.CertificatesCertManager && !s.blocked && s.deploys() {
		if err := r.deleteCertificateRequest(ctx, s); err != nil {
			return err
		}
	}
	if s.certificateMode() == v1alpha1.CertificatesManaged {
		return r.loadManaged(ctx, s, c)
	}
	return r.loadProvided(ctx, s, c)
}

// asError returns the error that stops the following phases.
func (p *certificateProblem) asError() error {
	if p.transient {
		return errWait
	}
	return newStalledError(p.reason, "%s", p.message)
}

func (s *reconcileState) certificateMode() v1alpha1.CertificateMode {
	if mode := s.spec.Serving.Certificates.Mode; mode != "" {
		return mode
	}
	return v1alpha1.CertificatesManaged
}

// mountCertificate writes the Secret that pods mount.
func (r *Reconciler) mountCertificate(ctx context.Context, s *reconcileState, pair servingcert.KeyPair, bundle servingcert.Bundle) error {
	_, err := r.applier.Apply(ctx, s.backend.Name, manifests.TLSSecret(s.serving, pair.Certificate, pair.Key, bundle.PEM()))
	if err == nil {
		s.certificates.mounted = bundle
	}
	return err
}

// readSecret returns a Secret with our label, or an empty one. It reads around the cache:
// with stale data a rotation would take a step back.
func (r *Reconciler) readSecret(ctx context.Context, s *reconcileState, name string) (*corev1.Secret, error) {
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

// registeredBundles returns the caBundles of the APIServices that point to our pods.
func (s *reconcileState) registeredBundles() []servingcert.Bundle {
	var bundles []servingcert.Bundle
	for _, name := range s.servingAPIServices() {
		bundles = append(bundles, servingcert.ParseBundle(s.registered[name].Spec.CABundle))
	}
	return bundles
}

// servingAPIServices returns the names of the APIServices that point to our pods, sorted.
func (s *reconcileState) servingAPIServices() []string {
	var names []string
	for _, name := range s.registeredNames() {
		if s.pointsToServing(s.registered[name]) {
			names = append(names, name)
		}
	}
	return names
}

// certificateSecrets returns the Secrets that the prune must keep.
func (s *reconcileState) certificateSecrets() []manifests.Object {
	keep := []manifests.Object{manifests.TLSSecret(s.serving, nil, nil, nil)}
	c := s.certificates
	if s.certificateMode() == v1alpha1.CertificatesManaged || c == nil || c.signedByUs() {
		keep = append(keep, manifests.CASecret(s.serving, manifests.Authorities{}))
	}
	if s.certificateMode() == v1alpha1.CertificatesCertManager {
		keep = append(keep, manifests.IssuedSecret(s.serving))
	}
	if provided := s.spec.Serving.Certificates.Secret; provided != nil {
		// The user's Secret may have our label.
		keep = append(keep, manifests.ProvidedSecret(s.serving, provided.Name))
	}
	return keep
}

// replaceCertificate replaces the mounted certificate if it has to, once clients trust
// the new authority.
func (r *Reconciler) replaceCertificate(ctx context.Context, s *reconcileState) error {
	c := s.certificates
	switch {
	case s.namespaceGone, s.blocked && len(s.servingAPIServices()) == 0:
		return nil // not needed now
	case c.provided != nil:
		return r.installProvided(ctx, s, c)
	case c.problem != nil && !c.signedByUs():
		return nil
	}
	if err := r.promoteNext(ctx, s, c); err != nil {
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
	if c.waiting = r.awaitTrust(ctx, s, authority.Authority()); c.waiting != "" {
		return nil
	}
	klog.FromContext(ctx).Info("Issuing a serving certificate", "secret", s.serving.TLSSecretName(), "why", why.Error())
	leaf, err := r.issuer.Leaf(authority, s.serving.DNSNames())
	if err != nil {
		return err
	}
	return r.install(ctx, s, leaf)
}

// installProvided is replaceCertificate for a provided certificate.
func (r *Reconciler) installProvided(ctx context.Context, s *reconcileState, c *certificates) error {
	if c.provided.Equal(c.served) {
		return nil
	}
	chain, err := c.provided.Chain()
	if err != nil {
		return err
	}
	if c.waiting = r.awaitTrust(ctx, s, r.issuer.InUse(c.wanted, chain)); c.waiting != "" {
		return nil
	}
	klog.FromContext(ctx).Info("Taking over a serving certificate", "secret", s.serving.TLSSecretName(), "mode", s.certificateMode())
	return r.install(ctx, s, *c.provided)
}

// install mounts a certificate whose authority clients trust.
func (r *Reconciler) install(ctx context.Context, s *reconcileState, pair servingcert.KeyPair) error {
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
