// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificates issues, takes over and rotates the certificate of the serving
// pods. All decisions rest on Secrets and APIServices, so that a new process continues
// where the last one ended.
//
// Pods mount one Secret in every mode, and only the operator writes it. A change of the
// authority, or of the mode, has one order: every kube-apiserver trusts the new
// authority, then the certificate changes, then, when every pod serves it, the old
// authority is removed.
package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// Aggregator queries kube-apiservers about an APIService.
type Aggregator interface {
	Lagging(ctx context.Context, name string, upToDate func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error)
}

// Reconciler reconciles the Secrets of serving certificates.
type Reconciler struct {
	Client client.Client
	// APIReader reads around the cache.
	APIReader  client.Reader
	Applier    *inventory.Applier
	Issuer     *servingcert.Issuer
	Aggregator Aggregator
}

// Input is what the certificate of one backend depends on.
type Input struct {
	Serving manifests.Serving
	// Deploys reports whether the operator deploys serving pods. Otherwise those that
	// still serve keep a valid certificate.
	Deploys bool
	// RotationRequest is AnnotationRotate of the MetricsBackend.
	RotationRequest string
	// Blocked: only what is registered is kept valid.
	Blocked bool
	// NamespaceGone: the serving namespace does not exist, or is being deleted.
	NamespaceGone bool
	Now           time.Time
	// APIServices are the live ones that point to the serving pods, the same for Prepare
	// and Rotate.
	APIServices []*apiregistrationv1.APIService
	// Contested reports whether the operator has paused writing the APIService, since
	// another manager keeps changing what differs from the target with this caBundle.
	Contested func(service *apiregistrationv1.APIService, caBundle []byte) bool
	// Streaks are of one backend.
	Streaks *debounce.Tracker[StateKey]
}

// StateKey names a state whose duration is tracked.
type StateKey string

const (
	// trustedPrefix comes before the fingerprint of authorities that are in all caBundles.
	trustedPrefix StateKey = "trusted/"
	// podOutdated: a pod serves another certificate than the mounted one.
	podOutdated StateKey = "podOutdated"
	// A Certificate of cert-manager was applied; its deletion was tried for long enough, or there
	// was none; it cannot be read or deleted.
	certificateApplied         StateKey = "certificateApplied"
	certificateDeletionTried   StateKey = "certificateDeletionTried"
	certificateDeletionFailing StateKey = "certificateDeletionFailing"
)

// recheck is when pods are probed again after the certificate was replaced.
const recheck = time.Second

// Certificate is the state of a serving certificate in one reconciliation.
type Certificate struct {
	// CABundle verifies serving pods; nil before the first certificate.
	CABundle []byte
	// NotAfter is when the certificate expires; zero if unknown.
	NotAfter time.Time
	// Condition is CertificatesValid without its type; its status is empty if unchanged.
	Condition metav1.Condition
	// RequeueAfter is when to reconcile again at the latest, unless 0.
	RequeueAfter time.Duration

	// r is nil until the Secrets were read.
	r  *Reconciler
	in Input
	// served is the mounted certificate; chain is nil if it is unusable.
	served servingcert.KeyPair
	chain  []*x509.Certificate
	// mounted is the bundle in the mounted Secret.
	mounted servingcert.Bundle
	// trusted holds all authorities that clients or pods trust now.
	trusted servingcert.Bundle
	// wanted holds the authorities that remain at the end.
	wanted servingcert.Bundle
	// authorities are the operator's own, without unusable ones.
	authorities manifests.Authorities
	// provided is the usable certificate of cert-manager or the user, if any.
	provided *servingcert.KeyPair
	// unusable is why there is no usable provided certificate.
	unusable *servingcert.UnusableError
	// waiting is what the replacement of the authority or certificate waits for.
	waiting string
	// outdatedPod is a pod that serves another certificate than the mounted one.
	outdatedPod string
}

// Prepare determines which certificate pods should serve and which authorities clients
// should trust. It replaces the certificate only if none is usable; Rotate does so
// otherwise, after pods were probed. With an error it returns what it knows.
func (r *Reconciler) Prepare(ctx context.Context, in Input) (Certificate, error) {
	c := Certificate{r: r, in: in}
	mounted, err := c.readSecret(ctx, in.Serving.TLSSecretName())
	if err != nil {
		return Certificate{}, err
	}
	c.served = servingcert.Provided(mounted.Data)
	c.mounted = servingcert.ParseBundle(mounted.Data[v1alpha1.SecretKeyCA])
	c.chain, _ = c.served.Chain() // nil if it is unusable
	c.trusted = c.mounted.With(c.registeredBundles()...)
	if err := c.findAuthorities(ctx); err != nil {
		return Certificate{}, err
	}
	if err := c.loadWanted(ctx); err != nil {
		return Certificate{}, err
	}
	c.trusted = c.trusted.With(c.wanted)
	c.CABundle = c.trusted.PEM()
	switch {
	case !in.Deploys:
		err = c.replace(ctx)
		c.setCondition()
	case in.Blocked:
	case c.chain != nil:
		err = c.mount(ctx, c.served, c.trusted)
	case c.unusable != nil:
		c.setCondition()
		err = c.unusable
	default:
		err = c.replace(ctx)
	}
	return c, err
}

func (c *Certificate) loadWanted(ctx context.Context) error {
	if c.mode() != v1alpha1.CertificatesCertManager && !c.in.Blocked && c.in.Deploys {
		if _, err := c.r.DeleteCertManagerCertificate(ctx, c.in.Serving, c.in.Streaks); err != nil {
			return err
		}
	}
	if c.mode() == v1alpha1.CertificatesManaged {
		return c.loadManaged(ctx)
	}
	return c.loadProvided(ctx)
}

func (c *Certificate) mode() v1alpha1.CertificateMode {
	return c.in.Serving.Spec.Certificates.Mode
}

// mount writes the Secret that pods mount.
func (c *Certificate) mount(ctx context.Context, pair servingcert.KeyPair, bundle servingcert.Bundle) error {
	_, err := c.r.Applier.Apply(ctx, c.in.Serving.Backend, manifests.TLSSecret(c.in.Serving, pair.Certificate, pair.Key, bundle.PEM()))
	if err == nil {
		c.mounted = bundle
	}
	return err
}

// readSecret returns a Secret with our label, or an empty one. It reads around the cache:
// with stale data a rotation would take a step back.
func (c *Certificate) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	key := client.ObjectKey{Namespace: c.in.Serving.Namespace, Name: name}
	secret := &corev1.Secret{}
	err := c.r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return &corev1.Secret{}, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", key, err)
	case secret.Labels[v1alpha1.LabelBackend] != c.in.Serving.Backend:
		return &corev1.Secret{}, nil
	}
	return secret, nil
}

// registeredBundles returns the caBundles of the APIServices.
func (c *Certificate) registeredBundles() []servingcert.Bundle {
	var bundles []servingcert.Bundle
	for _, service := range c.in.APIServices {
		bundles = append(bundles, servingcert.ParseBundle(service.Spec.CABundle))
	}
	return bundles
}

// Secrets returns the Secrets that are in use, to be kept by a prune.
func (c *Certificate) Secrets() []manifests.Object {
	serving := c.in.Serving
	keep := []manifests.Object{manifests.TLSSecret(serving, nil, nil, nil)}
	if c.mode() == v1alpha1.CertificatesManaged || c.signedByUs() {
		keep = append(keep, manifests.CASecret(serving, manifests.Authorities{}))
	}
	if c.mode() == v1alpha1.CertificatesCertManager || c.in.Streaks.Get(certificateDeletionFailing).Count > 0 {
		keep = append(keep, manifests.SecretOfOthers(serving, serving.IssuedSecretName()))
	}
	if provided := serving.Spec.Certificates.SecretRef; provided != nil {
		// The user's Secret may have our label.
		keep = append(keep, manifests.SecretOfOthers(serving, provided.Name))
	}
	return keep
}

func (c *Certificate) requeueWithin(d time.Duration) {
	if c.RequeueAfter == 0 || d < c.RequeueAfter {
		c.RequeueAfter = d
	}
}

// reloadGrace is for pods that serve an old certificate. A kubelet updates a mounted
// Secret within a minute and a half.
const reloadGrace = 5 * time.Minute

func (c *Certificate) setCondition() {
	if len(c.chain) > 0 {
		c.NotAfter = c.chain[0].NotAfter
	}
	status, reason, message := c.condition()
	c.Condition = metav1.Condition{Status: status, Reason: reason, Message: message}
}

func (c *Certificate) condition() (status metav1.ConditionStatus, reason, message string) {
	namespace, serverName := c.in.Serving.Namespace, c.in.Serving.ServerName()
	secret := fmt.Sprintf("Secret %s/%s", namespace, c.in.Serving.TLSSecretName())
	outdated := c.in.Streaks.Set(podOutdated, c.outdatedPod != "").Elapsed > reloadGrace
	replaced := ""
	if c.waiting != "" {
		replaced = ", it is being replaced: " + c.waiting
	}
	source, hint := c.source()
	switch {
	case c.unusable != nil && (!c.unusable.Transient || len(c.chain) == 0):
		return metav1.ConditionFalse, c.unusable.Reason, c.unusable.Message
	case len(c.chain) == 0 && c.in.Blocked:
		return metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"no usable certificate yet: it is issued once the backend is no longer blocked"
	case len(c.chain) == 0:
		return metav1.ConditionFalse, v1alpha1.ReasonCertificateInvalid,
			"there is no usable certificate in " + secret + ", another is on its way: " + c.waiting
	case c.in.Now.After(c.chain[0].NotAfter):
		return metav1.ConditionFalse, v1alpha1.ReasonCertificateExpired,
			fmt.Sprintf("the certificate in %s has expired%s", secret, replaced)
	case c.chain[0].VerifyHostname(serverName) != nil, c.r.Issuer.Verify(c.chain, c.trusted, serverName) != nil:
		return metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch,
			fmt.Sprintf("the certificate in %s is not for %s, or of no trusted authority%s", secret, serverName, replaced)
	case outdated:
		return metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch,
			fmt.Sprintf("pod %s/%s serves another certificate than that of %s: its kubelet does not bring it; delete the pod",
				namespace, c.outdatedPod, secret)
	case c.waiting != "":
		return metav1.ConditionTrue, v1alpha1.ReasonRotating, "the certificate is being replaced: " + c.waiting
	case c.unusable != nil:
		return metav1.ConditionFalse, c.unusable.Reason, c.unusable.Message
	case c.expiresSoon():
		return metav1.ConditionFalse, v1alpha1.ReasonCertificateExpiring,
			fmt.Sprintf("the certificate in %s, or its authority, expires soon and was not renewed (%s): %s",
				secret, source, hint)
	}
	return metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"the serving certificate for " + serverName + " is valid and " + source
}

// expiresSoon reports whether the certificate, or every authority that verifies it, is
// past its time of renewal.
func (c *Certificate) expiresSoon() bool {
	lasting := slices.DeleteFunc(c.r.Issuer.InUse(c.trusted, c.chain), c.r.Issuer.EndsSoon)
	return len(lasting) == 0 || c.r.Issuer.EndsSoon(c.chain[0])
}

// source describes where the certificate comes from, and what to do if it is not renewed.
func (c *Certificate) source() (source, hint string) {
	namespace := c.in.Serving.Namespace
	switch c.mode() {
	case v1alpha1.CertificatesCertManager:
		return "issued by cert-manager", fmt.Sprintf("kubectl describe -n %s certificate %s", namespace, c.in.Serving.Name())
	case v1alpha1.CertificatesSecret:
		return "from Secret " + namespace + "/" + c.in.Serving.Spec.Certificates.SecretRef.Name, "renew it in that Secret"
	}
	return "renewed by the operator", "see Ready for what blocks the operator"
}
