// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

// issuedSecret requests a certificate from cert-manager and returns its Secret.
func (c *Certificate) issuedSecret(ctx context.Context) (*corev1.Secret, *servingcert.UnusableError, error) {
	serving := c.in.Serving
	if !c.in.Blocked && c.in.Deploys {
		_, err := c.r.Applier.Apply(ctx, serving.Backend, manifests.Certificate(serving, serving.Spec.Certificates.CertManager.IssuerRef))
		switch {
		case meta.IsNoMatchError(err):
			return nil, &servingcert.UnusableError{Reason: v1alpha1.ReasonCertManagerMissing, Message: "cert-manager is not installed " +
				"(there is no Certificate in API group cert-manager.io): install it, or choose another spec.serving.certificates.mode"}, nil
		case err != nil:
			return nil, nil, err
		}
		c.in.Streaks.Set(certificateApplied, true)
		c.in.Streaks.Reset(certificateDeletionFailing)
	}
	secret, err := c.readSecret(ctx, serving.IssuedSecretName())
	if err != nil {
		return nil, nil, err
	}
	issuer := serving.Spec.Certificates.CertManager.IssuerRef
	if secret.Name == "" || !issuedBy(secret, issuer) {
		why, err := c.r.notIssued(ctx, serving)
		return nil, &servingcert.UnusableError{Reason: v1alpha1.ReasonProgressing, Transient: true, Message: fmt.Sprintf(
			"cert-manager has not issued the certificate of %s %s yet: kubectl describe -n %s certificate %s%s",
			issuer.Kind, issuer.Name, serving.Namespace, serving.Name(), why)}, err
	}
	return secret, nil, nil
}

// Annotations in which cert-manager records the issuer of a certificate; all are empty for a temporary certificate.
const (
	issuerNameAnnotation  = "cert-manager.io/issuer-name"
	issuerKindAnnotation  = "cert-manager.io/issuer-kind"
	issuerGroupAnnotation = "cert-manager.io/issuer-group"
)

// issuedBy reports whether the certificate is of the issuer. After a change of the issuer, the Secret keeps the previous
// certificate until the new one is issued.
func issuedBy(secret *corev1.Secret, issuer v1alpha1.IssuerReference) bool {
	name, recorded := secret.Annotations[issuerNameAnnotation]
	return !recorded || name == issuer.Name &&
		cmp.Or(secret.Annotations[issuerKindAnnotation], "Issuer") == cmp.Or(issuer.Kind, "Issuer") &&
		cmp.Or(secret.Annotations[issuerGroupAnnotation], manifests.CertManagerGroup) == cmp.Or(issuer.Group, manifests.CertManagerGroup)
}

// notIssued returns the message of the Certificate's Ready condition.
func (r *Reconciler) notIssued(ctx context.Context, serving manifests.Serving) (string, error) {
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(manifests.CertificateKind)
	err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: serving.Namespace, Name: serving.Name()}, request)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("get Certificate %s: %w", serving.Name(), err)
	}
	conditions, _, _ := unstructured.NestedSlice(request.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			if message, ok := c["message"].(string); ok {
				return ": " + message, nil
			}
		}
	}
	return "", nil
}

const (
	// certificateDeletionGrace is how long errors of reading or deleting the Certificate block
	// reconciliation and deletion: cert-manager's webhooks, or its kind, may be broken for ever.
	certificateDeletionGrace = time.Minute
	// certificateDeletionRetry is when the deletion is tried again after that.
	certificateDeletionRetry = 5 * time.Minute
)

// DeleteCertManagerCertificate deletes our Certificate of cert-manager. Its kind may not exist, so it is not watched: the
// read happens once in a process, and after each request. An error is returned for certificateDeletionGrace; afterwards
// the Certificate stays until a later try succeeds, and the caller must keep what is returned: its Secret, which
// cert-manager would issue again.
func (r *Reconciler) DeleteCertManagerCertificate(ctx context.Context, serving manifests.Serving, streaks *debounce.Tracker[StateKey]) ([]manifests.Object, error) {
	tried, failing := streaks.Get(certificateDeletionTried), streaks.Get(certificateDeletionFailing)
	if tried.Count == 0 || streaks.Get(certificateApplied).Count > 0 || failing.Count > 0 && tried.Elapsed >= certificateDeletionRetry {
		err := r.deleteCertificate(ctx, serving)
		failing = streaks.Set(certificateDeletionFailing, err != nil)
		switch {
		case err != nil && failing.Elapsed < certificateDeletionGrace:
			return nil, err
		case err != nil:
			klog.FromContext(ctx).Error(err, "Going on without the deletion of the Certificate of cert-manager, its Secret stays")
		}
		streaks.Reset(certificateApplied)
		streaks.Reset(certificateDeletionTried)
		streaks.Set(certificateDeletionTried, true)
	}
	if failing.Count > 0 {
		return []manifests.Object{manifests.SecretOfOthers(serving, serving.IssuedSecretName())}, nil
	}
	return nil, nil
}

func (r *Reconciler) deleteCertificate(ctx context.Context, serving manifests.Serving) error {
	request := inventory.Prototype(manifests.CertificateKind)
	key := client.ObjectKey{Namespace: serving.Namespace, Name: serving.Name()}
	err := r.APIReader.Get(ctx, key, request)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
	case err != nil:
		return fmt.Errorf("get Certificate %s: %w", key, err)
	case request.GetLabels()[v1alpha1.LabelBackend] == serving.Backend && request.GetDeletionTimestamp() == nil:
		err := r.Client.Delete(ctx, request, client.Preconditions{UID: new(request.GetUID())})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Certificate %s: %w", key, err)
		}
	}
	return nil
}
