// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MetricsBackend provides the metrics APIs of the cluster: it deploys an
// implementation, registers its API versions with kube-apiserver once its ready pods serve
// them, and unregisters a version before any pod stops serving it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=mb,categories=metrics
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether all components match the spec"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why it is ready, or not"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="Whether the metrics APIs answer"
// +kubebuilder:printcolumn:name="Versions",type=string,JSONPath=`.status.registeredVersions`,description="API versions that are registered and available"
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.serving.summary`,description="Ready and desired serving pods"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,description="What the operator is doing or waiting for"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="metadata.name must be at most 40 characters: the names of the objects that serve the backend are made from it"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label (lower case letters, digits and '-'): the name of the Service that serves the backend is made from it"
type MetricsBackend struct {
	metav1.TypeMeta `json:",inline"`

	// Standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which metrics APIs are served, from which sources, and how serving is deployed.
	// `resourceMetrics: {}` alone is a complete production setup.
	// +required
	Spec MetricsBackendSpec `json:"spec"`

	// The state that the operator last observed. Updated only when it changes. The
	// default means not observed yet: kstatus would take an empty status as finished.
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
// +kubebuilder:validation:XValidation:rule="!has(self.existing) || ((!has(self.sources) || size(self.sources) == 0) && (!has(self.resourceMetrics) || !has(self.resourceMetrics.rules)) && (!has(self.customMetrics) || ((!has(self.customMetrics.rules) || size(self.customMetrics.rules) == 0) && (!has(self.customMetrics.routes) || size(self.customMetrics.routes) == 0))) && (!has(self.externalMetrics) || ((!has(self.externalMetrics.rules) || size(self.externalMetrics.rules) == 0) && (!has(self.externalMetrics.routes) || size(self.externalMetrics.routes) == 0))))",message="with spec.existing nothing is queried here: take sources, rules and routes out"
type MetricsBackendSpec struct {
	// An implementation that someone else runs. The operator then deploys no serving
	// component, and only manages the APIServices: sources, rules and routes are refused. When it is set or removed, the
	// APIServices move without a failed request. Default: none; the operator deploys
	// the serving component.
	// +optional
	Existing *ExistingSpec `json:"existing,omitempty"`

	// How the serving component is deployed: image, replicas, placement. Changes roll
	// its pods one at a time, with never fewer ready pods than replicas. No effect with
	// existing, except namespace. Default: two replicas of the image released with the
	// operator.
	// +optional
	// +kubebuilder:default={}
	Serving ServingSpec `json:"serving,omitzero"`

	// Serves metrics.k8s.io: CPU and memory of nodes and pods, from kubelets. Running
	// pods apply changes without a rollout; `versions` only changes which APIServices
	// are registered. Default: its versions are not registered.
	// +optional
	ResourceMetrics *ResourceMetricsSpec `json:"resourceMetrics,omitempty"`

	// Serves custom.metrics.k8s.io: metrics of objects, queried from sources as rules
	// and CustomMetrics define. Requires a source, unless existing is set. Running pods apply changes without a
	// rollout; `versions` only changes which APIServices are registered. Default: its
	// versions are not registered.
	// +optional
	CustomMetrics *CustomMetricsSpec `json:"customMetrics,omitempty"`

	// Serves external.metrics.k8s.io: metrics that describe no object, queried from
	// sources as rules and ExternalMetrics define. Requires a source, unless existing is set. Running pods apply
	// changes without a rollout; `versions` only changes which APIServices are
	// registered. Default: its version is not registered.
	// +optional
	ExternalMetrics *ExternalMetricsSpec `json:"externalMetrics,omitempty"`

	// A version that is no longer in the spec stays registered until no client has used it
	// for a whole day in UTC (status.consumers). The versions in this list, such as
	// v1beta1.metrics.k8s.io, do not wait. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Enum=v1.metrics.k8s.io;v1beta1.metrics.k8s.io;v1beta2.custom.metrics.k8s.io;v1beta1.custom.metrics.k8s.io;v1beta1.external.metrics.k8s.io
	RemoveDespiteConsumers []string `json:"removeDespiteConsumers,omitempty"`

	// Sources of custom and external metrics and of resourceMetrics.rules, at most 32.
	// Rules and metrics without a source use the first one with prometheus. Running pods apply changes,
	// and new contents of the Secrets, without a restart. Not together with `existing`.
	// Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Sources []SourceSpec `json:"sources,omitempty"`

	// Watches of the metrics APIs: `?watch=true` sends each data point as soon as it is
	// stored. Running pods apply changes without a rollout. No effect with `existing`.
	// Default: enabled, with up to 10000 watches per serving pod.
	// +optional
	// +kubebuilder:default={}
	Watch WatchSpec `json:"watch,omitzero"`
}

// MetricsBackendStatus is the observed state of a MetricsBackend.
type MetricsBackendStatus struct {
	// Generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Which operator manages the backend, if several run in the cluster.
	// +optional
	Installation InstallationStatus `json:"installation,omitzero"`

	// Conditions of the backend. Available: the registered APIs answer real requests.
	// Ready: all components match the spec. Reconciling and Stalled are present only
	// while True. CertificatesValid, ServingReady, APIServicesRegistered,
	// StaleAPIServicesRemoved, SourcesHealthy, RulesReady and ConsumersCompatible are
	// about one area each. docs/reference/conditions.md lists the reasons.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Each API version that is desired, registered or being removed.
	// +optional
	// +listType=map
	// +listMapKey=name
	APIServices []APIServiceStatus `json:"apiServices,omitempty"`

	// The clients that used a version on one of the last two days, up to 20 for each
	// version.
	// +optional
	// +listType=atomic
	Consumers []ConsumerStatus `json:"consumers,omitempty"`

	// The registered and available versions in one line, for the printer column: VERSION
	// for metrics.k8s.io, custom/VERSION and external/VERSION for the others.
	// +optional
	RegisteredVersions string `json:"registeredVersions,omitempty"`

	// The deployed serving component.
	// +optional
	Serving *ServingStatus `json:"serving,omitempty"`

	// Whether a CA has verified the certificate of any kubelet. It stays true until the
	// MetricsBackend is deleted. From then on kubeletTLS.mode VerifyOrPin pins nothing,
	// since a self-signed certificate is unexpected where others are signed.
	// +optional
	KubeletsVerified bool `json:"kubeletsVerified,omitempty"`

	// State of each of spec.sources, in the same order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Sources []SourceStatus `json:"sources,omitempty"`

	// Problems of rules, in the order of the spec, up to 50. They do not affect other
	// rules.
	// +optional
	// +listType=atomic
	Rules []RuleStatus `json:"rules,omitempty"`

	// Number of rules in the serving pods.
	// +optional
	RuleCount int32 `json:"ruleCount,omitempty"`

	// Number of rules that produce no metrics because of a problem.
	// +optional
	FailingRules int32 `json:"failingRules,omitempty"`
}

// InstallationStatus says which operator manages a MetricsBackend. An operator is named by
// its namespace.
type InstallationStatus struct {
	// Namespace of the operator that manages the backend. No other operator changes the
	// backend or its objects. It changes when that namespace is deleted.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Namespace of another running operator that would manage the backend, too.
	// +optional
	Other string `json:"other,omitempty"`
}

// APIServiceState is the state of an API version.
// +kubebuilder:validation:Enum=Pending;Canary;Moving;Trial;Registered;Available;Kept;Contested;Retiring;Restoring
type APIServiceState string

const (
	// APIServicePending means that the version is desired, but not every ready pod serves it yet.
	APIServicePending APIServiceState = "Pending"
	// APIServiceCanary means that it is being checked whether every kube-apiserver reaches the pods,
	// before an APIService is taken over.
	APIServiceCanary APIServiceState = "Canary"
	// APIServiceMoving means that its APIService is about to point to another Service.
	APIServiceMoving APIServiceState = "Moving"
	// APIServiceTrial means that its APIService was taken over, which is final once requests have
	// succeeded for a while.
	APIServiceTrial APIServiceState = "Trial"
	// APIServiceRegistered means that its APIService exists, but the aggregator does not report it
	// available yet.
	APIServiceRegistered APIServiceState = "Registered"
	// APIServiceAvailable means that the aggregator reports its APIService available.
	APIServiceAvailable APIServiceState = "Available"
	// APIServiceKept means that the spec no longer names the version, and clients still use it.
	APIServiceKept APIServiceState = "Kept"
	// APIServiceContested means that another field manager keeps changing its APIService back.
	APIServiceContested APIServiceState = "Contested"
	// APIServiceRetiring means that its APIService is being removed; pods serve the version until
	// that is confirmed.
	APIServiceRetiring APIServiceState = "Retiring"
	// APIServiceRestoring means the same, while its APIService is handed back to its previous owner.
	APIServiceRestoring APIServiceState = "Restoring"
)

// IsRetiring reports whether the version is being removed.
func (s APIServiceState) IsRetiring() bool {
	return s == APIServiceRetiring || s == APIServiceRestoring
}

// IsPending reports whether the version has no APIService of the backend yet.
func (s APIServiceState) IsPending() bool {
	return s == "" || s == APIServicePending || s == APIServiceCanary
}

// APIServiceStatus is the state of one API version.
type APIServiceStatus struct {
	// Name of the APIService: VERSION.GROUP.
	// +required
	Name string `json:"name"`
	// Pending: not every ready pod serves the version yet. Canary: kube-apiservers are being
	// checked for reaching the pods. Moving: its APIService is about to point to another
	// Service. Trial: it was taken over, not finally yet. Registered: its APIService exists.
	// Available: the aggregator reports it available. Kept: the spec no longer names it, and
	// clients use it. Contested: another field manager keeps changing it back. Retiring: it is
	// being removed. Restoring: it is being handed back to its previous owner.
	// +required
	State APIServiceState `json:"state"`
	// Why it is in that state, unless that is obvious.
	// +optional
	Message string `json:"message,omitempty"`
	// The annotation metricsbackend.io/previous-owner of the APIService, if it was taken over. An
	// APIService that someone deletes is registered again with it.
	// +optional
	PreviousOwner string `json:"previousOwner,omitempty"`
	// What the implementation of someone else's APIService answers, and the serving pods do not,
	// or with another value: nodes, pods, and metrics that a HorizontalPodAutoscaler reads. At
	// most 10.
	// +optional
	// +listType=atomic
	Differences []string `json:"differences,omitempty"`
	// Who applies someone else's APIService, or one that was taken over, as its labels, annotations
	// and field managers tell: a Helm release, an object of Flux, an Argo CD Application, an add-on
	// manager. Its next change takes the APIService back.
	// +optional
	AppliedBy string `json:"appliedBy,omitempty"`
}

// ServingStatus is the observed state of the serving Deployment.
type ServingStatus struct {
	// Image of the Deployment.
	// +optional
	Image string `json:"image,omitempty"`
	// Namespace of the Deployment.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Number of desired pods.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Number of ready pods.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// READY/DESIRED, for the printer column.
	// +optional
	Summary string `json:"summary,omitempty"`
	// When the certificate of the pods expires.
	// +optional
	CertificateNotAfter *metav1.Time `json:"certificateNotAfter,omitempty"`
	// The pods, with the versions that each reports, by name, up to 20. Only the operator
	// can query a single pod without sending it credentials that the pod could misuse.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pods []ServingPodStatus `json:"pods,omitempty"`
}

// MaxServingPods limits status.serving.pods to twice the maximum of replicas, for a
// rollout.
const MaxServingPods = 20

// ServingPodStatus is the last observed state of a serving pod.
type ServingPodStatus struct {
	// Name of the pod.
	// +required
	Name string `json:"name"`
	// Image of the pod.
	// +optional
	Image string `json:"image,omitempty"`
	// Whether the pod is ready, so that it gets requests.
	// +required
	Ready bool `json:"ready"`
	// Whether the pod has the newest revision of the Deployment.
	// +required
	UpToDate bool `json:"upToDate"`
	// The desired or registered versions that the pod serves, each as VERSION.GROUP.
	// Empty if the operator could not query it.
	// +optional
	// +listType=set
	Versions []string `json:"versions,omitempty"`
	// Problem of the pod: it does not run, the operator could not query it, or requests
	// to some versions fail.
	// +optional
	Message string `json:"message,omitempty"`
}
