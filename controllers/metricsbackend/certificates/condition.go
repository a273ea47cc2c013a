// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

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
		return "from Secret " + namespace + "/" + c.in.Serving.Spec.Certificates.Secret.Name, "renew it in that Secret"
	}
	return "renewed by the operator", "see Ready for what blocks the operator"
}
