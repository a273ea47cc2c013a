// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// ServingSpec says how the serving component is deployed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.hostNetwork) || !self.hostNetwork || !has(self.port) || self.port != 10250",message="serving.port 10250 is the kubelet's own on each node: with serving.hostNetwork remove serving.port (10443 is the default then), or choose one that is free on all nodes"
// +kubebuilder:validation:XValidation:rule="has(oldSelf.__namespace__) == has(self.__namespace__) && (!has(self.__namespace__) || self.__namespace__ == oldSelf.__namespace__)",message="serving.namespace is immutable: delete the MetricsBackend and create it again with the other namespace"
type ServingSpec struct {
	// Namespace of the serving component. It must exist and be one of the operator's
	// --namespaces. Immutable. Default: the operator's own namespace.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`

	// Container image of the serving component. Default: the image released with the
	// operator.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// When the kubelet pulls the image: Always, IfNotPresent or Never. Default:
	// IfNotPresent.
	// +optional
	// +kubebuilder:default=IfNotPresent
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// Secrets in the serving namespace with credentials for pulling the image, at most
	// 10. If one does not exist, the backend is Stalled. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:XValidation:rule="self.all(s, size(s.name) > 0)",message="each of serving.imagePullSecrets must name a Secret"
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// Number of serving pods. Every pod scrapes every kubelet, so more replicas add
	// availability but no capacity. With two or more, a PodDisruptionBudget keeps one
	// during node drains. From 1 to 10. Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Replicas *int32 `json:"replicas,omitempty"`

	// CPU and memory requests and limits of a serving pod, which needs about 90 MiB of
	// memory, 0.13 MiB for each node of 30 pods, and 70 KiB for each open watch.
	// Default: requests of 50m CPU and 64Mi memory, no limits.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// Labels of the nodes that serving pods may run on. Default: all Linux nodes.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Taints that serving pods tolerate. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Scheduling affinity of serving pods. It replaces the default completely. Default:
	// prefer nodes without another serving pod of this backend.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// How serving pods are spread over nodes and zones, at most 10. A labelSelector that is
	// not set selects the serving pods of this backend. The default of affinity stays in
	// force. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=10
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// Priority class of serving pods. Autoscaling stops without them. For
	// system-cluster-critical and system-node-critical the operator creates a
	// ResourceQuota, without which clusters such as GKE refuse these pods outside of
	// kube-system; it limits nothing. Default: system-cluster-critical.
	// +optional
	// +kubebuilder:default=system-cluster-critical
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Leaves runAsUser, runAsGroup and fsGroup of serving pods to the platform, for those
	// that refuse other ones than they assign, such as OpenShift. The pods must not run as
	// root in either case. Default: false, all three are 65532.
	// +optional
	UserFromPlatform bool `json:"userFromPlatform,omitempty"`

	// Runs serving pods in the host network, for clusters whose control plane cannot
	// reach the pod network. Each node can then run only one of them. Default: false.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`

	// TCP port of serving pods, from 1024 to 65535: they run without the privilege to
	// bind lower ports. kube-apiserver connects to it: before you change it, allow the new
	// one from the control plane to the nodes. With hostNetwork it must be free on all
	// nodes. On AWS Fargate, where a pod shares its address with a kubelet, set 10251.
	// Default: 10250, which firewalls usually allow, since it is the kubelets'; with
	// hostNetwork 10443.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Verbosity of the serving log, from 0 (only what an administrator must see) to 10
	// (every request). Default: 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	LogVerbosity *int32 `json:"logVerbosity,omitempty"`

	// Where the serving certificate comes from. Default: mode Managed, the operator issues
	// it.
	// +optional
	// +kubebuilder:default={}
	Certificates CertificatesSpec `json:"certificates,omitzero"`

	// Labels to add to the serving pods and to every object that the operator creates for
	// this backend, at most 50. A change rolls the pods. The prefixes metricsbackend.io/,
	// app.kubernetes.io/ and rbac.authorization.k8s.io/ are reserved. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('rbac.authorization.k8s.io/'))",message="labels below rbac.authorization.k8s.io/ would make the ClusterRoles of serving part of other roles: take them out"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('metricsbackend.io/') && !k.startsWith('app.kubernetes.io/'))",message="labels below metricsbackend.io/ and app.kubernetes.io/ are set by the operator: choose another prefix"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations to add to the serving pods, at most 50. The prefix metricsbackend.io/ is
	// reserved. Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('metricsbackend.io/'))",message="annotations below metricsbackend.io/ are set by the operator: choose another prefix"
	Annotations map[string]string `json:"annotations,omitempty"`

	// Annotations to add to the ServiceAccount of the serving pods, at most 50, such as those
	// of a cloud provider's workload identity. Pods that run already get what they grant when
	// they are replaced (kubectl rollout restart). Default: none.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	ServiceAccountAnnotations map[string]string `json:"serviceAccountAnnotations,omitempty"`

	// Environment variables to add to the serving container, at most 50, for example
	// HTTPS_PROXY for requests to sources (NO_PROXY must then have those inside of the
	// cluster, such as .svc), GOMEMLIMIT or GOGC. Those that the operator sets
	// (POD_IP, SCRAPE_SERVICE_ACCOUNT) are refused. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.all(e, !(e.name in ['POD_IP', 'SCRAPE_SERVICE_ACCOUNT']))",message="serving.env must not have POD_IP and SCRAPE_SERVICE_ACCOUNT, which the operator sets"
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Key of a ConfigMap in the serving namespace with CA certificates in PEM, which serving
	// trusts in addition to the public ones, or those that SSL_CERT_FILE or SSL_CERT_DIR in
	// env name: for https:// sources without a CA of their own, proxies to them, and
	// authorization servers. It is watched: a change takes effect with the next connection.
	// If the ConfigMap or its key is missing, these sources fail, and nothing else. Default:
	// none.
	// +optional
	CAConfigMapKeyRef *ConfigMapKeyReference `json:"caConfigMapKeyRef,omitempty"`

	// Whether the operator creates a NetworkPolicy for the serving pods. Restricted: it
	// allows connections to their API port, and from them to the ports of DNS,
	// kube-apiserver, kubelets and the URLs of sources, at any address. If the Service of
	// a source forwards to another port of its pods, add a NetworkPolicy of your own. If
	// the status of a node has another kubelet port than 10250, set
	// resourceMetrics.scrape.port, or that kubelet cannot be scraped. None: no
	// NetworkPolicy. Default: None.
	// +optional
	// +kubebuilder:default=None
	NetworkPolicy NetworkPolicyMode `json:"networkPolicy,omitempty"`

	// Additional command line flags of the serving component in the form --flag=value, at
	// most 50, for example `--runtime-config=metrics.k8s.io/v1=false` or
	// `--max-requests-inflight=800`. Allowed are flags of
	//   - TLS: --tls-min-version, --tls-cipher-suites, --tls-curve-preferences,
	//     --strict-transport-security-directives;
	//   - logs: --vmodule, --logging-format, --log-flush-frequency,
	//     --log-json-info-buffer-size, --log-json-split-stream, --log-text-info-buffer-size,
	//     --log-text-split-stream; audit logs: --audit-log-path, --audit-log-format,
	//     --audit-log-mode, --audit-log-version, --audit-log-truncate-enabled,
	//     --audit-log-maxage, --audit-log-maxbackup, --audit-log-maxsize,
	//     --audit-log-compress, --audit-policy-file; --profiling, --contention-profiling;
	//   - limits and times: --max-requests-inflight, --max-mutating-requests-inflight,
	//     --request-timeout, --min-request-timeout, --goaway-chance,
	//     --disable-http2-serving, --http2-max-streams-per-connection, --rates-timeout,
	//     --livez-grace-period, --shutdown-watch-termination-grace-period;
	//   - features: --feature-gates, --runtime-config, --emulated-version,
	//     --emulation-forward-compatible, --min-compatibility-version,
	//     --runtime-config-emulation-forward-compatible.
	// Others are rejected, such as those that change who may connect, as whom, or to what.
	// Use serving.port, serving.certificates and serving.logVerbosity for what these set. A
	// file that a flag names must be in the image, nothing is mounted. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.startsWith('--') && a.contains('='))",message="each of serving.extraArgs must have the form --flag=value"
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.split('=')[0].replace('_', '-') in ['--tls-min-version', '--tls-cipher-suites', '--tls-curve-preferences', '--strict-transport-security-directives', '--vmodule', '--logging-format', '--log-flush-frequency', '--log-json-info-buffer-size', '--log-json-split-stream', '--log-text-info-buffer-size', '--log-text-split-stream', '--audit-log-path', '--audit-log-format', '--audit-log-mode', '--audit-log-version', '--audit-log-truncate-enabled', '--audit-log-maxage', '--audit-log-maxbackup', '--audit-log-maxsize', '--audit-log-compress', '--audit-policy-file', '--max-requests-inflight', '--max-mutating-requests-inflight', '--request-timeout', '--min-request-timeout', '--goaway-chance', '--disable-http2-serving', '--http2-max-streams-per-connection', '--feature-gates', '--emulated-version', '--emulation-forward-compatible', '--min-compatibility-version', '--runtime-config', '--runtime-config-emulation-forward-compatible', '--profiling', '--contention-profiling', '--rates-timeout', '--livez-grace-period', '--shutdown-watch-termination-grace-period'])",message="serving.extraArgs only allows flags of TLS versions and ciphers, of logs, audit logs and profiling, of limits of requests and their times, and of feature gates and API versions; port, certificates and log verbosity are set by serving.port, serving.certificates and serving.logVerbosity, and authentication and authorization are always those of kube-apiserver"
	ExtraArgs []string `json:"extraArgs,omitempty"`
}

// NetworkPolicyMode is whether a NetworkPolicy is created for the serving pods.
// +kubebuilder:validation:Enum=None;Restricted
type NetworkPolicyMode string

const (
	// NetworkPolicyNone creates no NetworkPolicy.
	NetworkPolicyNone NetworkPolicyMode = "None"
	// NetworkPolicyRestricted creates one that allows only the connections that serving
	// needs.
	NetworkPolicyRestricted NetworkPolicyMode = "Restricted"
)
