// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// AdoptionPolicy is what happens to an APIService that someone else owns.
// +kubebuilder:validation:Enum=Refuse;IfUnavailable;Always
type AdoptionPolicy string

const (
	// AdoptionRefuse does not change it; the backend is Stalled with reason NotOwned.
	AdoptionRefuse AdoptionPolicy = "Refuse"
	// AdoptionIfUnavailable takes it over once kube-apiserver has reported it
	// unavailable for a minute.
	AdoptionIfUnavailable AdoptionPolicy = "IfUnavailable"
	// AdoptionAlways takes it over once this backend serves the version.
	AdoptionAlways AdoptionPolicy = "Always"
)

// ExistingSpec refers to an implementation of the metrics API that someone else runs.
// The operator then deploys nothing, and registers the versions that every ready
// endpoint of the Service serves.
//
// +kubebuilder:validation:XValidation:rule="has(self.caBundle) != (has(self.insecureSkipTLSVerify) && self.insecureSkipTLSVerify)",message="existing needs either caBundle or insecureSkipTLSVerify: true, and not both (metrics-server's stock certificate is self-signed for \"localhost\": it needs insecureSkipTLSVerify: true)"
type ExistingSpec struct {
	// The Service that serves the metrics API.
	// +required
	Service ExistingService `json:"service"`

	// CA certificates in PEM that verify the Service's certificate, which must be valid
	// for NAME.NAMESPACE.svc. Default: none, which requires
	// insecureSkipTLSVerify: true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	CABundle []byte `json:"caBundle,omitempty"`

	// Disables verification of the Service's certificate: an attacker who can answer in
	// its place controls the values that autoscalers get. Default: false.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}

// ExistingService names a Service.
type ExistingService struct {
	// Namespace of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Name of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Port of the Service, from 1 to 65535. Default: 443.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
}

// AnnotationPreviousOwner on an APIService that was taken over has its PreviousOwner as
// JSON, so that it can be restored. It is on the APIService itself, since a status does
// not survive a backup and restore.
const AnnotationPreviousOwner = "metricsbackend.io/previous-owner"

// WritesBack is in the message of a version whose APIService is someone else's, and is not taken
// over whatever adoption says, since who applies it would undo that.
const WritesBack = "writes it back at any time"

// PreviousOwner is what an APIService was before it was taken over.
// +kubebuilder:object:generate=false
type PreviousOwner struct {
	// Service of the APIService.
	Service ExistingService `json:"service"`
	// CABundle and InsecureSkipTLSVerify are how its certificate was verified.
	CABundle              []byte `json:"caBundle,omitempty"`
	InsecureSkipTLSVerify bool   `json:"insecureSkipTLSVerify,omitempty"`
	// GroupPriorityMinimum and VersionPriority are its priorities.
	GroupPriorityMinimum int32 `json:"groupPriorityMinimum"`
	VersionPriority      int32 `json:"versionPriority"`
	// Labels that the takeover changed or removed, with their previous values; nil
	// means that the label was not set.
	Labels map[string]*string `json:"labels,omitempty"`
}
