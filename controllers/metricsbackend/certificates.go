// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"bytes"
	"context"
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

// certificates keeps the managed authority and the serving certificate. Pods
// reload a renewed certificate in process. The authority's key is in a Secret
// that no pod mounts.
//
// An authority that is lost is replaced at once; the former ones stay in the
// bundle, so that pods with the former certificate stay trusted meanwhile.
// (A planned change of authority, with overlap, has its place here.)
func (r *Reconciler) certificates(ctx context.Context, s *scope) error {
	if s.unmanaged {
		s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"Secrets of a namespace that the operator does not manage are not read")
		return nil
	}
	current, err := r.readSecret(ctx, s, s.serving.TLSSecretName())
	if err != nil {
		return err
	}
	s.caBundle = current.Data[v1alpha1.SecretKeyCA]
	if s.blocked || !s.deploys() {
		return r.keepCertificate(ctx, s, current)
	}
	authority, err := r.ensureAuthority(ctx, s)
	if err != nil {
		return err
	}
	return r.issueCertificate(ctx, s, authority, current)
}

// keepCertificate renews the certificate of a backend that is held up: what is
// registered goes on being served, and must not expire before someone looks. Only
// under the authority that clients know, since no APIService is written meanwhile.
func (r *Reconciler) keepCertificate(ctx context.Context, s *scope, current *corev1.Secret) error {
	if !s.deploys() && !s.servesStill() {
		return nil
	}
	r.judgeCertificate(s, keyPair(current))
	if !s.servesStill() || s.withoutNamespace {
		return nil
	}
	secret, err := r.readSecret(ctx, s, s.serving.CASecretName())
	if err != nil {
		return err
	}
	authority := keyPair(secret)
	if why := r.issuer.CheckAuthority(authority); why != nil {
		klog.FromContext(ctx).Info("Cannot renew the serving certificate while the backend is held up",
			"secret", s.serving.CASecretName(), "why", why.Error())
		return nil
	}
	for _, service := range s.registered {
		if !s.leadsToServing(service) {
			continue
		}
		// An authority that was replaced just before is not in use yet.
		if !bytes.Contains(service.Spec.CABundle, bytes.TrimSpace(authority.Certificate)) {
			return nil
		}
	}
	return r.issueCertificate(ctx, s, authority, current)
}

// issueCertificate keeps the serving certificate valid, and the bundle complete.
func (r *Reconciler) issueCertificate(ctx context.Context, s *scope, authority servingcert.KeyPair, current *corev1.Secret) error {
	bundle, err := r.issuer.Bundle(authority, s.formerBundles()...)
	if err != nil {
		return fmt.Errorf("build the CA bundle: %w", err)
	}
	leaf := keyPair(current)
	if why := r.issuer.CheckLeaf(leaf, authority, s.serving.DNSNames()); why != nil {
		klog.FromContext(ctx).Info("Issuing a serving certificate", "secret", s.serving.TLSSecretName(), "why", why.Error())
		if leaf, err = r.issuer.Leaf(authority, s.serving.DNSNames()); err != nil {
			return err
		}
	}
	secret := manifests.TLSSecret(s.serving, leaf.Certificate, leaf.Key, bundle)
	if _, err := r.applier.Apply(ctx, s.backend.Name, secret); err != nil {
		return err
	}
	s.caBundle = bundle
	r.judgeCertificate(s, leaf)
	return nil
}

// ensureAuthority returns the authority, a new one when there is none that works.
func (r *Reconciler) ensureAuthority(ctx context.Context, s *scope) (servingcert.KeyPair, error) {
	secret, err := r.readSecret(ctx, s, s.serving.CASecretName())
	if err != nil {
		return servingcert.KeyPair{}, err
	}
	authority := keyPair(secret)
	if why := r.issuer.CheckAuthority(authority); why != nil {
		klog.FromContext(ctx).Info("Making a certificate authority", "secret", s.serving.CASecretName(), "why", why.Error())
		if authority, err = r.issuer.Authority(s.serving.Name()); err != nil {
			return servingcert.KeyPair{}, err
		}
	}
	_, err = r.applier.Apply(ctx, s.backend.Name, manifests.CASecret(s.serving, authority.Certificate, authority.Key))
	return authority, err
}

// readSecret returns one of our Secrets, or an empty one. A key that must not be
// made twice is looked for around the cache before it counts as missing.
func (r *Reconciler) readSecret(ctx context.Context, s *scope, name string) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: s.serving.Namespace, Name: name}
	secret := &corev1.Secret{}
	err := r.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, secret)
	}
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

// formerBundles are all authorities that clients trust now: those in the Secret,
// and, should that be lost, those in the APIServices.
func (s *scope) formerBundles() [][]byte {
	bundles := [][]byte{s.caBundle}
	for _, name := range s.registeredNames() {
		// One that leads elsewhere holds the authority of someone else.
		if s.leadsToServing(s.registered[name]) {
			bundles = append(bundles, s.registered[name].Spec.CABundle)
		}
	}
	return bundles
}

func (r *Reconciler) judgeCertificate(s *scope, leaf servingcert.KeyPair) {
	notAfter, err := leaf.NotAfter()
	s.certificateNotAfter = notAfter
	switch {
	case err != nil && s.blocked:
		s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"no usable certificate yet: it is issued once the backend is no longer stalled")
	case err != nil:
		s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonCertificateInvalid,
			fmt.Sprintf("the certificate in Secret %s/%s cannot be used: %v", s.serving.Namespace, s.serving.TLSSecretName(), err))
	case s.now.After(notAfter):
		s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonCertificateInvalid,
			fmt.Sprintf("the certificate in Secret %s/%s has expired", s.serving.Namespace, s.serving.TLSSecretName()))
	default:
		s.mark(v1alpha1.ConditionCertificatesValid, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			"the serving certificate for "+s.serving.ServerName()+" is valid and renewed by the operator")
	}
}

func keyPair(secret *corev1.Secret) servingcert.KeyPair {
	return servingcert.KeyPair{
		Certificate: secret.Data[v1alpha1.SecretKeyCertificate],
		Key:         secret.Data[v1alpha1.SecretKeyPrivateKey],
	}
}
