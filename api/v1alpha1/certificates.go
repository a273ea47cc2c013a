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
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Secret') == has(self.secret)",message="certificates.secret is needed with mode: Secret, and has no effect without: set both or none"
// +kubebuilder:validation:XValidation:rule="!has(self.rotate) || !has(self.mode) || self.mode == 'Managed'",message="certificates.rotate has an effect with mode: Managed only: in other modes the issuer renews the certificate"
type CertificatesSpec struct {
	// Who issues the certificate. Managed: the operator creates a CA (valid 10 years)
	// and a certificate (valid 90 days) and renews both in time; kube-apiserver trusts
	// the old and the new CA meanwhile. CertManager: cert-manager issues it, see
	// certManager. Secret: you provide and renew it, see secret. Default: Managed.
	// +optional
	// +kubebuilder:default=Managed
	Mode CertificateMode `json:"mode,omitempty"`

	// Any text, such as a date, of at most 64 characters; with mode Managed only. A
	// new text rotates CA and certificate now, for example after a leak of the key.
	// Removing it does nothing. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rotate string `json:"rotate,omitempty"`

	// The issuer, required with mode CertManager. It must put its CA certificate into
	// ca.crt of the Secret: CA and Vault issuers do, ACME issuers do not. Default: none.
	// +optional
	CertManager *CertManagerSpec `json:"certManager,omitempty"`

	// The Secret in the serving namespace, required with mode Secret. Its keys are
	// tls.crt and tls.key, the certificate for SERVICE.NAMESPACE.svc, and ca.crt, the
	// CA certificates that verify it, all PEM. Before you change the CA, add the new
	// one to ca.crt and wait until the condition CertificatesValid is True. Default: none.
	// +optional
	Secret *CertificateSecret `json:"secret,omitempty"`
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

// CertificateSecret names a Secret that the user provides.
type CertificateSecret struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
