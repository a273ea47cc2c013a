// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// CertificateMode says where serving's certificate comes from.
// +kubebuilder:validation:Enum=Managed;CertManager;Secret
type CertificateMode string

const (
	// CertificatesManaged means that the operator issues it from a CA of its own.
	CertificatesManaged CertificateMode = "Managed"
	// CertificatesCertManager means that cert-manager issues it into a Secret.
	CertificatesCertManager CertificateMode = "CertManager"
	// CertificatesSecret means that the user provides it in a Secret.
	CertificatesSecret CertificateMode = "Secret"
)

// CertificatesSpec says where serving's certificate comes from. Pods load a changed
// certificate without a restart, within about 90 seconds.
//
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'CertManager') == has(self.certManager)",message="certificates.certManager is needed with mode: CertManager, and has no effect without: set both or none"
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Secret') == has(self.secretRef)",message="certificates.secretRef is needed with mode: Secret, and has no effect without: set both or none"
type CertificatesSpec struct {
	// Who issues the certificate. Managed: the operator creates a CA (valid 10 years)
	// and a certificate (valid 90 days) and renews both in time; kube-apiserver trusts
	// the old and the new CA meanwhile. A new text in the MetricsBackend's annotation
	// metricsbackend.io/rotate-certificates, such as a date, rotates both now; it does nothing with other modes. CertManager:
	// cert-manager issues it, see certManager. Secret: you provide and renew it, see
	// secretRef. Default: Managed.
	// +optional
	// +kubebuilder:default=Managed
	Mode CertificateMode `json:"mode,omitempty"`

	// The issuer, required with mode CertManager. It must put its CA certificate into
	// ca.crt of the Secret: CA and Vault issuers do, ACME issuers do not. Default: none.
	// +optional
	CertManager *CertManagerSpec `json:"certManager,omitempty"`

	// The Secret in the serving namespace, required with mode Secret. Its keys are
	// tls.crt and tls.key, the certificate for SERVICE.NAMESPACE.svc, and ca.crt, the
	// CA certificates that verify it, all PEM. Before you change the CA, add the new
	// one to ca.crt and wait until the condition CertificatesValid is True. Default: none.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// CertManagerSpec refers to cert-manager's objects.
type CertManagerSpec struct {
	// The issuer of the certificate.
	// +required
	IssuerRef IssuerReference `json:"issuerRef"`
}

// IssuerReference names a cert-manager issuer.
type IssuerReference struct {
	// Name of the issuer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Kind of the issuer: Issuer (in the serving namespace), ClusterIssuer, or a kind
	// of another API group. Default: Issuer.
	// +optional
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// API group of the issuer. Default: cert-manager.io.
	// +optional
	// +kubebuilder:default=cert-manager.io
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
}
