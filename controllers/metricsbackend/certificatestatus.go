// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func (r *Reconciler) setCertificatesValid(s *reconcileState) {
	c := s.certificates
	if len(c.chain) > 0 {
		s.certificateNotAfter = c.chain[0].NotAfter
	}
	s.setResult(v1alpha1.ConditionCertificatesValid, r.certificateResult(s, c))
}

func (r *Reconciler) certificateResult(s *reconcileState, c *certificates) conditionResult {
	secret := fmt.Sprintf("Secret %s/%s", s.serving.Namespace, s.serving.TLSSecretName())
	outdated := s.history.streaks.Observe(stateKey{state: certificateOutdated}, c.outdatedPod != "").Elapsed > certificateReloadGrace
	switch {
	case c.problem != nil && (!c.problem.transient || len(c.chain) == 0):
		return conditionResult{metav1.ConditionFalse, c.problem.reason, c.problem.message}
	case len(c.chain) == 0 && s.blocked:
		return conditionResult{metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"no usable certificate yet: it is issued once the backend is no longer blocked"}
	case len(c.chain) == 0:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonCertificateInvalid,
			"there is no usable certificate in " + secret + ", another is on its way: " + c.waiting}
	case s.now.After(c.chain[0].NotAfter):
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonCertificateExpired,
			fmt.Sprintf("the certificate in %s has expired%s", secret, waitingSuffix(c.waiting))}
	case c.chain[0].VerifyHostname(s.serving.ServerName()) != nil, r.issuer.Verify(c.chain, c.trusted, s.serving.ServerName()) != nil:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch,
			fmt.Sprintf("the certificate in %s is not for %s, or of no trusted authority%s", secret, s.serving.ServerName(), waitingSuffix(c.waiting))}
	case outdated:
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch,
			fmt.Sprintf("pod %s/%s serves another certificate than that of %s: its kubelet does not bring it; delete the pod",
				s.serving.Namespace, c.outdatedPod, secret)}
	case c.waiting != "":
		return conditionResult{metav1.ConditionTrue, v1alpha1.ReasonRotating, "the certificate is being replaced: " + c.waiting}
	case c.problem != nil:
		return conditionResult{metav1.ConditionFalse, c.problem.reason, c.problem.message}
	case r.expiresSoon(c):
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonCertificateExpiring,
			fmt.Sprintf("the certificate in %s, or its authority, expires soon and was not renewed (%s): %s",
				secret, s.certificateSource(), s.renewalHint())}
	}
	return conditionResult{metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"the serving certificate for " + s.serving.ServerName() + " is valid and " + s.certificateSource()}
}

func waitingSuffix(waiting string) string {
	if waiting == "" {
		return ""
	}
	return ", it is being replaced: " + waiting
}

// expiresSoon reports whether the certificate, or every authority that verifies it, is
// past its time of renewal.
func (r *Reconciler) expiresSoon(c *certificates) bool {
	if r.issuer.EndsSoon(c.chain[0]) {
		return true
	}
	for _, authority := range r.issuer.InUse(c.trusted, c.chain) {
		if !r.issuer.EndsSoon(authority) {
			return false
		}
	}
	return true
}

func (s *reconcileState) renewalHint() string {
	switch s.certificateMode() {
	case v1alpha1.CertificatesCertManager:
		return fmt.Sprintf("kubectl describe -n %s certificate %s", s.serving.Namespace, s.serving.Name())
	case v1alpha1.CertificatesSecret:
		return "renew it in that Secret"
	}
	return "see Ready for what blocks the operator"
}

// certificateSource describes where the certificate comes from.
func (s *reconcileState) certificateSource() string {
	switch s.certificateMode() {
	case v1alpha1.CertificatesCertManager:
		return "issued by cert-manager"
	case v1alpha1.CertificatesSecret:
		return "from Secret " + s.serving.Namespace + "/" + s.spec.Serving.Certificates.Secret.Name
	}
	return "renewed by the operator"
}
