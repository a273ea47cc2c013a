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
	// HorizontalPodAutoscaler controller of Kubernetes 1.37 knows.
	ResourceMetricsV1beta1 ResourceMetricsVersion = "v1beta1"
)

// ResourceMetricsSpec says how metrics.k8s.io is served.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxAge) || !has(self.scrape) || !has(self.scrape.interval) || duration(self.maxAge) >= duration(self.scrape.interval) + duration('30s')",message="maxAge must be at least 30s longer than scrape.interval (a kubelet's samples may be 20s old when they are read): raise maxAge, whose default is 90s"
type ResourceMetricsSpec struct {
	// Versions that are registered with kube-apiserver. A version that is added
	// is registered once every ready pod serves it; one that is taken out is
	// removed from discovery before anything else changes, but not while clients
	// use it (see removeDespiteConsumers). The HPA controller of Kubernetes 1.37
	// needs v1beta1. Default: [v1, v1beta1].
	// +optional
	// +kubebuilder:default={"v1","v1beta1"}
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Versions []ResourceMetricsVersion `json:"versions,omitempty"`

	// Versions that are removed although clients used them today or yesterday. A
	// version that is taken out of `versions` and has such clients (see
	// status.consumers) stays registered until they are gone, or until it is named
	// here. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	RemoveDespiteConsumers []ResourceMetricsVersion `json:"removeDespiteConsumers,omitempty"`

	// Takes CPU and memory from a source instead of from kubelets, in the language of
	// prometheus-adapter (`resourceRules` of its configuration). Default: kubelets.
	// +optional
	Rules *ResourceRules `json:"rules,omitempty"`

	// How kubelets are asked.
	// +optional
	// +kubebuilder:default={}
	Scrape ScrapeSpec `json:"scrape,omitzero"`

	// How kubelets' serving certificates are verified.
	// +optional
	// +kubebuilder:default={}
	KubeletTLS KubeletTLSSpec `json:"kubeletTLS,omitzero"`

	// Age at which a data point is no longer served. Until then the last point
	// of a node or pod stays, with its timestamp, whatever happens to later
	// scrapes. A duration such as `90s`, up to 1h, and at least 30s longer than
	// scrape.interval: kubelets' samples may be 20s old when they are read.
	// Default: 90s.
	// +optional
	// +kubebuilder:default="90s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="maxAge must be at most 1h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// ScrapeSpec says how kubelets are asked for their metrics.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) <= duration(self.interval)",message="scrape.timeout must not be longer than scrape.interval: a node is asked again only when its last scrape has ended"
type ScrapeSpec struct {
	// Time between two scrapes of one node. Nodes are spread over the interval.
	// A kubelet renews its samples every 10 to 20 seconds, so less than 10s
	// costs more and tells little. A duration from 1s to 10m. Default: 15s.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="scrape.interval must be between 1s and 10m"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Time after which a scrape is given up; the node's last data points stay.
	// A duration from 100ms to 1m. Default: 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="scrape.timeout must be between 100ms and 1m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Most scrapes under way at once. Default: 64.
	// +optional
	// +kubebuilder:default=64
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// Largest body accepted from a kubelet, up to 256Mi; a larger one costs that
	// scrape. A node with 110 pods of two containers sends about 100Ki. Default: 16Mi.
	// +optional
	// +kubebuilder:default="16Mi"
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,8}(Ki|Mi)?$`
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="!isQuantity(self) || quantity(self).compareTo(quantity('256Mi')) <= 0",message="scrape.maxBodySize must be at most 256Mi"
	MaxBodySize string `json:"maxBodySize,omitempty"`

	// Which address of a node is used: the first type in this order that the
	// node has. Default: [InternalIP, ExternalIP, Hostname, InternalDNS, ExternalDNS].
	// +optional
	// +kubebuilder:default={"InternalIP","ExternalIP","Hostname","InternalDNS","ExternalDNS"}
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Enum=Hostname;InternalIP;ExternalIP;InternalDNS;ExternalDNS
	AddressTypes []corev1.NodeAddressType `json:"addressTypes,omitempty"`

	// TCP port of the kubelets. Default: the port in each node's status
	// (status.daemonEndpoints.kubeletEndpoint), or 10250 where that is not set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Selects the nodes to scrape by their labels, for example to leave out
	// virtual nodes without a kubelet. Default: all nodes.
	// A node's annotation `metrics.k8s.io/resource-metrics-path` overrides the
	// path /metrics/resource.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="the operator of each of scrape.nodeSelector.matchExpressions must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="scrape.nodeSelector.matchExpressions need values with In and NotIn, and none with Exists and DoesNotExist"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// KubeletTLSMode says how a kubelet's serving certificate is verified.
// +kubebuilder:validation:Enum=Verify;PinOnFirstUse;Skip
type KubeletTLSMode string

const (
	// KubeletTLSVerify verifies against a certificate authority.
	KubeletTLSVerify KubeletTLSMode = "Verify"
	// KubeletTLSPinOnFirstUse keeps each node's first certificate and refuses
	// another one until the Node object is replaced.
	KubeletTLSPinOnFirstUse KubeletTLSMode = "PinOnFirstUse"
	// KubeletTLSSkip verifies nothing.
	KubeletTLSSkip KubeletTLSMode = "Skip"
)

// KubeletTLSSpec says how kubelets are verified before they get a token.
//
// +kubebuilder:validation:XValidation:rule="!has(self.caBundle) || !has(self.mode) || self.mode == 'Verify'",message="kubeletTLS.caBundle has an effect with mode Verify only: remove it or set mode: Verify"
type KubeletTLSSpec struct {
	// Verify: the certificate must be signed by the cluster's CA (or caBundle)
	// for the node's address. PinOnFirstUse: for clusters with self-signed
	// kubelet certificates (kubeadm's and kind's default): each node's first
	// certificate is kept in memory and any other refused until the Node object
	// is replaced; the first contact is not verified. Skip: no verification;
	// whoever answers at a node's address gets serving's token. Default: Verify.
	// +optional
	// +kubebuilder:default=Verify
	Mode KubeletTLSMode `json:"mode,omitempty"`

	// Certificate authorities, PEM, that sign the kubelets' certificates, when
	// it is not the cluster's CA. Default: the cluster's CA, as in each pod.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || string(self).contains('-----BEGIN CERTIFICATE-----')",message="kubeletTLS.caBundle must hold one or more certificates in PEM"
	CABundle []byte `json:"caBundle,omitempty"`
}
