// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// SourceAccountSuffix follows the name of the Service of serving in that of the ServiceAccount
// whose tokens sources get. Both are in the same namespace.
const SourceAccountSuffix = "-source"

// SourceAuthentication has the credentials for a source. One of its fields is required.
// The Secrets are in the namespace of the serving component, and are watched.
//
// +kubebuilder:validation:XValidation:rule="[has(self.bearerTokenSecretKeyRef), has(self.basicAuthSecretRef), has(self.serviceAccountToken), has(self.oauth2)].exists_one(is, is)",message="authentication needs exactly one of bearerTokenSecretKeyRef, basicAuthSecretRef, serviceAccountToken and oauth2"
type SourceAuthentication struct {
	// Key of a Secret with a bearer token. Default: none.
	// +optional
	BearerTokenSecretKeyRef *SecretKeyReference `json:"bearerTokenSecretKeyRef,omitempty"`

	// Secret of type kubernetes.io/basic-auth with the keys username and password.
	// Default: none.
	// +optional
	BasicAuthSecretRef *SecretReference `json:"basicAuthSecretRef,omitempty"`

	// Tokens of the ServiceAccount metrics-serving-NAME-source in the namespace of the
	// serving component, where NAME is that of the MetricsBackend. The operator creates
	// it without permissions: grant it what the server demands. Each token is valid for
	// ten minutes and renewed before. Default: none.
	// +optional
	ServiceAccountToken *SourceServiceAccountToken `json:"serviceAccountToken,omitempty"`

	// Tokens that an authorization server issues for a client's ID and secret (OAuth 2.0,
	// grant type client_credentials). They are renewed before they expire. Default: none.
	// +optional
	OAuth2 *SourceOAuth2 `json:"oauth2,omitempty"`
}

// SourceServiceAccountToken says which tokens are requested.
type SourceServiceAccountToken struct {
	// Audience of the tokens: the one that the server expects. Default: that of
	// kube-apiserver, for servers that let kube-apiserver check any token, such as
	// thanos-querier of OpenShift.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Audience string `json:"audience,omitempty"`
}

// SourceOAuth2 is a client of an authorization server.
type SourceOAuth2 struct {
	// URL of the token endpoint, https://, without user, query and fragment. It is always
	// verified, also with tls.insecureSkipTLSVerify: with the public CA certificates in
	// serving, those of serving.caConfigMapKeyRef, and the CA in tls, if any.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https://[^/?#@]+(/[^?#]*)?$')",message="tokenURL must be https:// and a host, without user, query and fragment"
	TokenURL string `json:"tokenURL"`

	// Secret with the keys client-id and client-secret. White space around them is removed.
	// +required
	CredentialsSecretRef SecretReference `json:"credentialsSecretRef"`

	// Scopes to request, at most 32. Default: none, which most servers take for those of
	// the client's registration.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	Scopes []string `json:"scopes,omitempty"`
}
