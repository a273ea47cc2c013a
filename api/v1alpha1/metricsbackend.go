// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetricsBackend gives the cluster its metrics APIs: it deploys an
// implementation, registers its API versions with kube-apiserver once every pod
// serves them, and removes them before any pod stops doing so.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=mb,categories=metrics
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the backend is as its spec says"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether the metrics APIs answer"
// +kubebuilder:printcolumn:name="Versions",type=string,JSONPath=`.status.registeredVersions`,description="API versions that are registered and available"
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.serving.summary`,description="Ready serving pods of those desired"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the backend is doing or waiting for"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="metadata.name must be at most 40 characters: the names of the objects that serve the backend are made from it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label (lower case letters, digits and '-'): the name of the Service that serves the backend is made from it"
type MetricsBackend struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the backend should serve, from which sources, and how it is run.
	// An empty `resourceMetrics: {}` is a complete production setup.
	// +required
	Spec MetricsBackendSpec `json:"spec"`

	// What the operator last observed. Written only when it changes. The default says
	// that it did not look yet: kstatus takes an object without any status for finished.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status MetricsBackendStatus `json:"status,omitempty"`
}

// MetricsBackendList is a list of MetricsBackends.
//
// +kubebuilder:object:root=true
type MetricsBackendList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MetricsBackend `json:"items"`
}

// MetricsBackendSpec is the desired state of a MetricsBackend.
//
// +kubebuilder:validation:XValidation:rule="has(self.resourceMetrics) || has(self.customMetrics) || has(self.externalMetrics)",message="nothing to serve: set spec.resourceMetrics (an empty object, `resourceMetrics: {}`, is a good start), spec.customMetrics or spec.externalMetrics"
// +kubebuilder:validation:XValidation:rule="has(self.existing) || !has(self.customMetrics) || (has(self.sources) && size(self.sources) > 0)",message="spec.customMetrics needs at least one source that its metrics come from: set spec.sources"
// +kubebuilder:validation:XValidation:rule="has(self.existing) || !has(self.externalMetrics) || (has(self.sources) && size(self.sources) > 0)",message="spec.externalMetrics needs at least one source that its metrics come from: set spec.sources"
// +kubebuilder:validation:XValidation:rule="has(self.existing) || !has(self.resourceMetrics) || !has(self.resourceMetrics.rules) || (has(self.sources) && size(self.sources) > 0)",message="spec.resourceMetrics.rules need a source that the figures come from: set spec.sources, or take the rules out for kubelets' figures"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.__namespace__) == has(self.__namespace__) && (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)",message="spec.namespace is immutable: delete the MetricsBackend and create it again with the other namespace"
type MetricsBackendSpec struct {
	// Namespace that the serving component runs in. It must exist, and the
	// operator must be allowed to manage it (its --namespaces flag).
	// Default: the operator's own namespace. Immutable.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// What happens to an APIService of the metrics API that someone else owns.
	// Refuse: it is left alone, and the backend is Stalled. IfUnavailable: it is
	// taken over once kube-apiserver has reported it unavailable for a minute.
	// Always: it is taken over as soon as this backend serves its version. What it
	// was is kept in an annotation on it, and it is handed back, if its Service
	// still answers, when this MetricsBackend no longer wants it. Default: Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// An implementation that someone else runs. The operator then deploys no
	// serving component, and keeps the APIServices of this one. Setting it, or
	// taking it out, moves the APIServices without a failed request. Default:
	// none; the operator deploys the serving component.
	// +optional
	Existing *ExistingSpec `json:"existing,omitempty"`

	// How the serving component is deployed: image, replicas, placement.
	// Changes here roll its pods, one at a time and never below the wanted
	// number. Default: two replicas of the image released with the operator.
	// +optional
	// +kubebuilder:default={}
	Serving ServingSpec `json:"serving,omitzero"`

	// Serves metrics.k8s.io: CPU and memory of nodes and pods, from kubelets.
	// Changes here are taken up by running pods and roll nothing, except that
	// `versions` governs which APIServices are registered.
	// +optional
	ResourceMetrics *ResourceMetricsSpec `json:"resourceMetrics,omitempty"`

	// Serves custom.metrics.k8s.io: metrics of objects, made from sources by rules and
	// by CustomMetrics. Changes here are taken up by running pods and roll nothing,
	// except that `versions` governs which APIServices are registered. Needs a source.
	// Default: its versions are not registered.
	// +optional
	CustomMetrics *CustomMetricsSpec `json:"customMetrics,omitempty"`

	// Serves external.metrics.k8s.io: metrics that describe no object, made from
	// sources by rules and by ExternalMetrics. Changes are taken up as those of
	// customMetrics. Needs a source. Default: its version is not registered.
	// +optional
	ExternalMetrics *ExternalMetricsSpec `json:"externalMetrics,omitempty"`

	// Versions, as VERSION.GROUP, that are removed although clients used them today or
	// yesterday, of groups that the spec no longer names at all: whoever takes a group
	// out of the spec cannot say so there. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=100
	RemoveDespiteConsumers []string `json:"removeDespiteConsumers,omitempty"`

	// Where custom and external metrics, and resourceMetrics.rules, come from. Rules
	// and metrics that name no source take the first. Running pods take up changes,
	// and what rotates in the Secrets, at once. No effect with `existing`. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Sources []SourceSpec `json:"sources,omitempty"`

	// How the metrics APIs are watched: `?watch=true` sends each data point the
	// moment it is stored. Changes here are taken up by running pods and roll
	// nothing. No effect with `existing`. Default: enabled, for 10000 watches a
	// serving pod.
	// +optional
	// +kubebuilder:default={}
	Watch WatchSpec `json:"watch,omitzero"`
}

// MetricsBackendStatus is the observed state of a MetricsBackend.
type MetricsBackendStatus struct {
	// Generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the backend. Available: the registered APIs answer real
	// requests. Ready: everything is as the spec says. Reconciling and Stalled
	// appear only while true. CertificatesValid, ServingReady,
	// APIServicesRegistered, StaleAPIServicesRemoved, SourcesHealthy, RulesReady
	// and ConsumersCompatible tell one area each. Reasons are listed in docs/conditions.md.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Each API version that is desired, registered or on its way out.
	// +optional
	// +listType=map
	// +listMapKey=name
	APIServices []APIServiceStatus `json:"apiServices,omitempty"`

	// The clients that asked for a version on one of the last two days, up to 20
	// for each version.
	// +optional
	// +listType=atomic
	Consumers []ConsumerStatus `json:"consumers,omitempty"`

	// The registered and available versions in one line, for the printer column: those
	// of metrics.k8s.io by themselves, the others as custom/VERSION and external/VERSION.
	// +optional
	RegisteredVersions string `json:"registeredVersions,omitempty"`

	// The deployed serving component.
	// +optional
	Serving *ServingStatus `json:"serving,omitempty"`

	// Each of spec.sources, in its order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Sources []SourceStatus `json:"sources,omitempty"`

	// What is wrong with rules, in the order of the spec, up to 50. All others work,
	// whatever is here.
	// +optional
	// +listType=atomic
	Rules []RuleStatus `json:"rules,omitempty"`

	// Number of rules that the serving pods know.
	// +optional
	RuleCount int32 `json:"ruleCount,omitempty"`

	// Number of those that make no metrics because something is wrong with them.
	// +optional
	FailingRules int32 `json:"failingRules,omitempty"`
}

// APIServiceState is how far an API version is on its way in or out.
// +kubebuilder:validation:Enum=Pending;Registered;Available;Retiring
type APIServiceState string

const (
	// APIServicePending is desired, but not yet served by every ready pod.
	APIServicePending APIServiceState = "Pending"
	// APIServiceRegistered exists, but the aggregator does not report it available yet.
	APIServiceRegistered APIServiceState = "Registered"
	// APIServiceAvailable is registered and reported available by the aggregator.
	APIServiceAvailable APIServiceState = "Available"
	// APIServiceRetiring is being removed; pods serve it until that is confirmed.
	APIServiceRetiring APIServiceState = "Retiring"
)

// APIServiceStatus is the state of one API version.
type APIServiceStatus struct {
	// Name of the APIService: VERSION.GROUP.
	Name string `json:"name"`
	// How far the version is: Pending, Registered, Available or Retiring.
	State APIServiceState `json:"state"`
	// Why it is in that state, when that is not obvious.
	// +optional
	Message string `json:"message,omitempty"`
}

// ServingStatus is the observed state of the serving Deployment.
type ServingStatus struct {
	// Image that the Deployment runs.
	// +optional
	Image string `json:"image,omitempty"`
	// Namespace that the serving component runs in.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Number of pods that are wanted.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Number of pods that are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// READY/WANTED, for the printer column.
	// +optional
	Summary string `json:"summary,omitempty"`
	// The end of the certificate that pods serve.
	// +optional
	CertificateNotAfter *metav1.Time `json:"certificateNotAfter,omitempty"`
	// Each pod and the versions that it said it serves, by name, up to 20. It is
	// here since nobody but the operator can ask a single pod without showing it
	// credentials of their own.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pods []ServingPodStatus `json:"pods,omitempty"`
}

// MaxServingPods bounds status.serving.pods: twice the most replicas, for a rollout.
const MaxServingPods = 20

// ServingPodStatus is a serving pod, as the operator last saw it.
type ServingPodStatus struct {
	// Name of the pod.
	Name string `json:"name"`
	// Image that it runs.
	// +optional
	Image string `json:"image,omitempty"`
	// Whether it is ready, so that requests reach it.
	Ready bool `json:"ready"`
	// Whether it is of the newest revision of the Deployment.
	UpToDate bool `json:"upToDate"`
	// Versions that it serves of those that are desired or registered, each as
	// VERSION.GROUP. Empty when the operator could not ask it.
	// +optional
	// +listType=set
	Versions []string `json:"versions,omitempty"`
	// What is wrong with it: that it is not running, that the operator could not
	// ask it, or which versions' requests fail in it.
	// +optional
	Message string `json:"message,omitempty"`
}
