// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// ServingSpec says how the serving component is deployed.
type ServingSpec struct {
	// Container image of the serving component.
	// Default: the image released with the operator.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// When the kubelet pulls the image: Always, IfNotPresent or Never.
	// Default: IfNotPresent.
	// +optional
	// +kubebuilder:default=IfNotPresent
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Secrets in the serving namespace with which the image is pulled. A Secret
	// that does not exist stalls the backend. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="self.all(s, size(s.name) > 0)",message="each of serving.imagePullSecrets must name a Secret"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Number of serving pods. Every pod reads every kubelet, so more replicas
	// add availability, not capacity. With two or more, a PodDisruptionBudget
	// keeps one through node drains. Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Replicas *int32 `json:"replicas,omitempty"`

	// CPU and memory requests and limits of a serving pod.
	// Default: requests of 50m CPU and 64Mi memory and no limits, which holds
	// for about 100 nodes; add about 0.1 MiB for each further node of 30 pods.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// Labels of the nodes that serving pods may run on. Default: any Linux node.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints that serving pods tolerate. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Scheduling affinity of serving pods. Replaces the default as a whole.
	// Default: prefer a node without another serving pod of this backend.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Priority class of serving pods. Autoscaling stops without them.
	// Default: system-cluster-critical.
	// +optional
	// +kubebuilder:default=system-cluster-critical
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Runs serving pods in the node's network, for clusters whose control plane
	// cannot reach the pod network. One pod per node then. Default: false.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`

	// TCP port that serving pods listen on, from 1024, since they run without the
	// privilege to bind lower ones. Choose a free one with hostNetwork.
	// Default: 10443.
	// +optional
	// +kubebuilder:default=10443
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Verbosity of the serving log: 0 (events an administrator must see) to 10
	// (every request). Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	LogVerbosity *int32 `json:"logVerbosity,omitempty"`

	// Where the serving certificate comes from. Default: the operator manages it.
	// +optional
	// +kubebuilder:default={}
	Certificates CertificatesSpec `json:"certificates,omitzero"`

	// Labels added to the serving Deployment and its pods. Keys below
	// metricsbackend.io and app.kubernetes.io are the operator's. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('metricsbackend.io/') && !k.startsWith('app.kubernetes.io/'))",message="labels below metricsbackend.io/ and app.kubernetes.io/ are set by the operator: choose another prefix"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations added to the serving pods. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('metricsbackend.io/'))",message="annotations below metricsbackend.io/ are set by the operator: choose another prefix"
	Annotations map[string]string `json:"annotations,omitempty"`

	// Restricted admits connections to the serving pods at their API port only,
	// and from them to the ports of DNS, kube-apiserver, kubelets and the URLs of
	// sources only, at any address. A source whose Service leads to another port of
	// its pods needs a NetworkPolicy of yours besides. Kubelets with a port of their
	// own in their node's status are cut off while resourceMetrics.scrape.port is
	// unset, since the policy holds the usual port alone. Default: None.
	// +optional
	// +kubebuilder:default=None
	NetworkPolicy NetworkPolicyMode `json:"networkPolicy,omitempty"`

	// Additional command line flags of the serving component, for flags of the
	// generic API server such as `--runtime-config=metrics.k8s.io/v1=false` or
	// `--max-requests-inflight=800`. Flags that the operator sets itself, or that
	// would take the pod's account or address from it, are refused. Nothing is
	// mounted for a flag that names a file: the file must be in the image.
	// Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.startsWith('--') && a.contains('='))",message="each of serving.extraArgs must have the form --flag=value"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !(a.split('=')[0].replace('_', '-') in ['--backend', '--backend-file', '--bind-address', '--secure-port', '--cert-dir', '--tls-cert-file', '--tls-private-key-file', '--service-name', '--service-namespace', '--serving-ca-file', '--kubeconfig', '--authentication-kubeconfig', '--authorization-kubeconfig', '--shutdown-delay-duration', '--shutdown-send-retry-after', '--v']))",message="this flag is set by the operator: use the field of the MetricsBackend instead"
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// NetworkPolicyMode says whether a NetworkPolicy guards the serving pods.
// +kubebuilder:validation:Enum=None;Restricted
type NetworkPolicyMode string

const (
	// NetworkPolicyNone creates no NetworkPolicy.
	NetworkPolicyNone NetworkPolicyMode = "None"
	// NetworkPolicyRestricted admits traffic to the API port only, and from the
	// pods to the ports of DNS, kube-apiserver and kubelets only, at any address.
	NetworkPolicyRestricted NetworkPolicyMode = "Restricted"
)
