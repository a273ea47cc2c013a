// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// CertificateMode says where serving's certificate comes from.
// +kubebuilder:validation:Enum=Managed;CertManager;Secret
type CertificateMode string

const (
	// CertificatesManaged means that the operator keeps an authority of its own.
	CertificatesManaged CertificateMode = "Managed"
	// CertificatesCertManager means that cert-manager issues it into a Secret.
	CertificatesCertManager CertificateMode = "CertManager"
	// CertificatesSecret takes it from a Secret that someone else keeps.
	CertificatesSecret CertificateMode = "Secret"
)

// CertificatesSpec says where serving's certificate comes from. Pods load a new
// certificate in process, within about a minute and a half of the change of its
// Secret; nothing is restarted.
//
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'CertManager') == has(self.certManager)",message="certificates.certManager is needed with mode: CertManager, and has no effect without: set both or none"
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Secret') == has(self.secret)",message="certificates.secret is needed with mode: Secret, and has no effect without: set both or none"
// +kubebuilder:validation:XValidation:rule="!has(self.rotate) || !has(self.mode) || self.mode == 'Managed'",message="certificates.rotate has an effect with mode: Managed only: whoever keeps the certificate renews it"
type CertificatesSpec struct {
	// Managed: the operator makes an authority (valid 10 years) and a certificate
	// (valid 90 days), and renews both in time, with an overlap in which clients
	// trust the old and the new. CertManager: cert-manager issues the certificate.
	// Secret: someone else keeps it in a Secret. Default: Managed.
	// +optional
	// +kubebuilder:default=Managed
	Mode CertificateMode `json:"mode,omitempty"`

	// Any text, such as a date. With mode Managed, a text that was not heeded yet
	// rotates authority and certificate now, for example after a leak of the key;
	// taking it out does nothing. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Rotate string `json:"rotate,omitempty"`

	// Who issues the certificate with mode CertManager. The issuer must put its
	// authority into ca.crt of the Secret: one of kind CA or Vault does, ACME does not.
	// +optional
	CertManager *CertManagerSpec `json:"certManager,omitempty"`

	// The Secret with mode Secret, in the serving namespace. Keys: tls.crt and
	// tls.key, the certificate for SERVICE.NAMESPACE.svc; and ca.crt, the
	// authorities to verify it with. Before a change of authority put the new one
	// beside the old one into ca.crt, and wait for CertificatesValid.
	// +optional
	Secret *CertificateSecret `json:"secret,omitempty"`
}

// CertManagerSpec refers to cert-manager's objects.
type CertManagerSpec struct {
	// The issuer.
	// +required
	IssuerRef IssuerReference `json:"issuerRef"`
}

// IssuerReference names an issuer of cert-manager.
type IssuerReference struct {
	// Name of the issuer.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Kind of the issuer: Issuer, in the serving namespace, ClusterIssuer, or a
	// kind of another group. Default: Issuer.
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

// CertificateSecret names a Secret of the user's.
type CertificateSecret struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
