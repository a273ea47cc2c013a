// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// AdoptionPolicy says what happens to an APIService that someone else owns.
// +kubebuilder:validation:Enum=Refuse;IfUnavailable;Always
type AdoptionPolicy string

const (
	// AdoptionRefuse leaves it alone; the backend is Stalled with reason NotOwned.
	AdoptionRefuse AdoptionPolicy = "Refuse"
	// AdoptionIfUnavailable takes it over once kube-apiserver has reported it
	// unavailable for a minute.
	AdoptionIfUnavailable AdoptionPolicy = "IfUnavailable"
	// AdoptionAlways takes it over once this backend serves the version.
	AdoptionAlways AdoptionPolicy = "Always"
)

// ExistingSpec names an implementation of the metrics API that someone else runs.
// The operator deploys nothing then, and keeps the APIServices of the versions
// that every ready endpoint of the Service serves.
//
// +kubebuilder:validation:XValidation:rule="has(self.caBundle) != (has(self.insecureSkipTLSVerify) && self.insecureSkipTLSVerify)",message="existing needs either caBundle or insecureSkipTLSVerify: true, and not both (metrics-server's stock certificate is self-signed for \"localhost\": it needs insecureSkipTLSVerify: true)"
type ExistingSpec struct {
	// The Service that answers the metrics API.
	// +required
	Service ExistingService `json:"service"`

	// Certificates in PEM with which the Service's certificate, which must be for
	// NAME.NAMESPACE.svc, is verified. Default: none, which needs
	// insecureSkipTLSVerify: true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1048576
	CABundle []byte `json:"caBundle,omitempty"`

	// Does not verify the Service's certificate: whoever can answer in its place
	// decides what autoscalers see. Default: false.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}

// ExistingService names a Service.
type ExistingService struct {
	// Namespace of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Name of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Port of the Service. Default: 443.
	// +optional
	// +kubebuilder:default=443
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
}

// AnnotationPreviousOwner on an APIService that was taken over holds, as JSON of a
// PreviousOwner, what a hand-back needs. It is on the APIService itself since a
// status does not survive a backup and restore.
const AnnotationPreviousOwner = "metricsbackend.io/previous-owner"

// PreviousOwner is what an APIService was before it was taken over.
// +kubebuilder:object:generate=false
type PreviousOwner struct {
	// Service that the APIService led to.
	Service ExistingService `json:"service"`
	// CABundle and InsecureSkipTLSVerify are how it was verified.
	CABundle              []byte `json:"caBundle,omitempty"`
	InsecureSkipTLSVerify bool   `json:"insecureSkipTLSVerify,omitempty"`
	// GroupPriorityMinimum and VersionPriority are its priorities.
	GroupPriorityMinimum int32 `json:"groupPriorityMinimum"`
	VersionPriority      int32 `json:"versionPriority"`
	// Labels that the takeover changed or removed, with their former values; a nil
	// value is a label that was not there.
	Labels map[string]*string `json:"labels,omitempty"`
}
