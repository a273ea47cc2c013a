// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceMetricsVersion is a version of metrics.k8s.io.
// +kubebuilder:validation:Enum=v1;v1beta1
type ResourceMetricsVersion string

const (
	// ResourceMetricsV1 is metrics.k8s.io/v1 (KEP-5207), which kubectl 1.37 prefers.
	ResourceMetricsV1 ResourceMetricsVersion = "v1"
	// ResourceMetricsV1beta1 is metrics.k8s.io/v1beta1, the only version that the
	// HorizontalPodAutoscaler controller of Kubernetes 1.37 uses.
	ResourceMetricsV1beta1 ResourceMetricsVersion = "v1beta1"
)

// ResourceMetricsSpec says how metrics.k8s.io is served.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxSampleAge) || !has(self.scrape) || !has(self.scrape.interval) || duration(self.maxSampleAge) >= duration(self.scrape.interval) + duration('30s')",message="maxSampleAge must be at least 30s longer than scrape.interval (a kubelet's samples may be 20s old when they are read): raise maxSampleAge, whose default is 90s"
type ResourceMetricsSpec struct {
	// Versions to register with kube-apiserver. A new version is registered once every
	// ready pod serves it. A version that you remove leaves discovery before anything
	// else changes, but only when no client uses it (see spec.removeDespiteConsumers). The
	// HPA controller of Kubernetes 1.37 needs v1beta1. Default: [v1, v1beta1].
	// +optional
	// +kubebuilder:default={"v1","v1beta1"}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Versions []ResourceMetricsVersion `json:"versions,omitempty"`

	// What happens to an APIService of this API that someone else owns, such as that of
	// metrics-server. Refuse: it is not changed, no version of this API is registered,
	// and the backend is Stalled; its other APIs are served. IfUnavailable: it is taken
	// over once kube-apiserver has reported it unavailable for a minute. Always: it is
	// taken over as soon as this backend serves its version. Its previous state is kept
	// in an annotation, and is restored, if its Service still answers, when this
	// MetricsBackend no longer needs it. Default: Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	Adoption AdoptionPolicy `json:"adoption,omitempty"`

	// Queries CPU and memory from a source instead of kubelets, with rules in
	// prometheus-adapter's syntax (`resourceRules` in its configuration). Default: none;
	// kubelets are scraped.
	// +optional
	Rules *ResourceRules `json:"rules,omitempty"`

	// How kubelets are scraped. No effect with rules or existing. Default: each 15s.
	// +optional
	// +kubebuilder:default={}
	Scrape ScrapeSpec `json:"scrape,omitzero"`

	// How serving certificates of kubelets are verified. No effect with rules or existing.
	// Default: mode VerifyOrPin.
	// +optional
	// +kubebuilder:default={}
	KubeletTLS KubeletTLSSpec `json:"kubeletTLS,omitzero"`

	// Maximum age of a data point that is served. Until then the last data point of a
	// node or pod is served with its timestamp, even if later scrapes fail. A duration
	// such as `90s`, up to 1h, and at least 30s longer than scrape.interval: samples of
	// kubelets may be 20s old when they are scraped. Default: 90s.
	// +optional
	// +kubebuilder:default="90s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="maxSampleAge must be at most 1h"
	MaxSampleAge *metav1.Duration `json:"maxSampleAge,omitempty"`
}

// ScrapeSpec says how kubelets are scraped.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) <= duration(self.interval)",message="scrape.timeout must not be longer than scrape.interval: a node is asked again only when its last scrape has ended"
type ScrapeSpec struct {
	// Time between two scrapes of a node. The scrapes of all nodes are spread over the
	// interval. A kubelet updates its samples every 10 to 20 seconds, so that less than
	// 10s, which needs a lower timeout, too, adds load but little information. A duration from
	// 1s to 10m. Default: 15s.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="scrape.interval must be between 1s and 10m"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Timeout of a scrape. If it expires, the last data points of the node stay. A
	// duration from 100ms to 1m, not longer than interval. Default: 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="scrape.timeout must be between 100ms and 1m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Maximum number of concurrent scrapes in a serving pod; others wait for their turn.
	// From 1 to 1000. Default: 64.
	// +optional
	// +kubebuilder:default=64
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// Maximum size of a kubelet's response in bytes, or with the suffix Ki or Mi, up to 256Mi; a scrape
	// with a larger one fails. A node with 110 pods of two containers sends about 100Ki.
	// Default: 16Mi.
	// +optional
	// +kubebuilder:default="16Mi"
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,8}(Ki|Mi)?$`
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="!isQuantity(self) || quantity(self).compareTo(quantity('256Mi')) <= 0",message="scrape.maxResponseSize must be at most 256Mi"
	MaxResponseSize string `json:"maxResponseSize,omitempty"`

	// Types of node addresses, in order of preference: a node is scraped at its addresses
	// of the first type that it has. Of several, such as IPv6 and IPv4, at most four are
	// tried in turn, until one can be connected to. Default: [InternalIP, ExternalIP,
	// Hostname, InternalDNS, ExternalDNS].
	// +optional
	// +kubebuilder:default={"InternalIP","ExternalIP","Hostname","InternalDNS","ExternalDNS"}
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Enum=Hostname;InternalIP;ExternalIP;InternalDNS;ExternalDNS
	AddressTypes []corev1.NodeAddressType `json:"addressTypes,omitempty"`

	// TCP port of the kubelets, from 1 to 65535. Default: the port in each node's status
	// (status.daemonEndpoints.kubeletEndpoint), or 10250 if that is not set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Labels of the nodes to scrape, for example to exclude virtual nodes without a
	// kubelet. A node's annotation `metrics.k8s.io/resource-metrics-path` overrides the
	// path /metrics/resource. Default: all nodes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="the operator of each of scrape.nodeSelector.matchExpressions must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="scrape.nodeSelector.matchExpressions need values with In and NotIn, and none with Exists and DoesNotExist"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// KubeletTLSMode is how a kubelet's serving certificate is verified.
// +kubebuilder:validation:Enum=VerifyOrPin;Verify;PinOnFirstUse;InsecureSkipTLSVerify
type KubeletTLSMode string

const (
	// KubeletTLSVerifyOrPin verifies it against a CA. As long as that has verified no
	// kubelet, it pins certificates that kubelets signed themselves.
	KubeletTLSVerifyOrPin KubeletTLSMode = "VerifyOrPin"
	// KubeletTLSVerify verifies it against a CA.
	KubeletTLSVerify KubeletTLSMode = "Verify"
	// KubeletTLSPinOnFirstUse keeps each node's first certificate and rejects others
	// until the Node object is replaced.
	KubeletTLSPinOnFirstUse KubeletTLSMode = "PinOnFirstUse"
	// KubeletTLSInsecureSkipTLSVerify does not verify it.
	KubeletTLSInsecureSkipTLSVerify KubeletTLSMode = "InsecureSkipTLSVerify"
)

// KubeletTLSSpec says how kubelets are verified before serving sends them its token.
//
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || !has(self.mode) || self.mode in ['Verify', 'VerifyOrPin']",message="kubeletTLS.caBundle has an effect with modes Verify and VerifyOrPin only: remove it or set mode: Verify"
type KubeletTLSSpec struct {
	// How certificates are verified. Verify: the certificate must be signed by the
	// cluster's CA (or caBundle) for the node's address. VerifyOrPin: the same once any
	// kubelet was verified that way (status.kubeletsVerified). Before, a certificate that
	// the kubelet signed itself for the node's name (the default of kubeadm and kind) is
	// accepted at the first connection and kept in memory; others are rejected until the
	// Node object is replaced. PinOnFirstUse: each node's first certificate is kept like
	// that, whoever signed it. InsecureSkipTLSVerify: no verification; any server at a node's
	// address gets the token for kubelets. Default: VerifyOrPin.
	// +optional
	// +kubebuilder:default=VerifyOrPin
	Mode KubeletTLSMode `json:"mode,omitempty"`

	// CA certificates in PEM that verify the kubelets' certificates with modes Verify and VerifyOrPin.
	// Default: the cluster's CA, as mounted in each pod.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || string(self).contains('-----BEGIN CERTIFICATE-----')",message="kubeletTLS.caBundle must hold one or more certificates in PEM"
	CABundle []byte `json:"caBundle,omitempty"`
}
