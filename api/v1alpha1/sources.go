// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SourceSpec is where metrics come from, other than kubelets.
type SourceSpec struct {
	// Name by which rules and metrics name the source.
	Name string `json:"name"`
	// An optional source is reported in status.sources, and makes nothing unhealthy.
	// The others make SourcesHealthy false while they fail, and new pods wait for
	// them, at most 30s, before they are ready for the first time. No source ever
	// takes readiness away from a pod: the other APIs go on. Default: false.
	// +optional
	Optional bool `json:"optional,omitempty"`
	// A server with the HTTP API of Prometheus: Prometheus, Thanos, Mimir, VictoriaMetrics.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`
}

// PrometheusSource is a server with Prometheus' HTTP API.
type PrometheusSource struct {
	// URL of the server, with the prefix of its paths, before `/api/v1`.
	URL string `json:"url"`
	// Time between two evaluations of a query, for all clients together. A rule or
	// a metric may have its own. From 1s to 1h. Default: 15s.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// Time after which a query is given up; sent along as `timeout`. Default: 10s.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
	// Time between two looks for new series. Default: 1m.
	// +optional
	SeriesInterval *metav1.Duration `json:"seriesInterval,omitempty"`
	// How far back series are looked for; at least seriesInterval. Default: 5m.
	// +optional
	SeriesMaxAge *metav1.Duration `json:"seriesMaxAge,omitempty"`
	// Most bytes of an answer. Default: 32Mi.
	// +optional
	MaxResponseSize *resource.Quantity `json:"maxResponseSize,omitempty"`
	// +optional
	TLS SourceTLS `json:"tls,omitzero"`
	// At most one of its members.
	// +optional
	Authentication SourceAuthentication `json:"authentication,omitzero"`
	// Headers of each request, such as a tenant's.
	// +optional
	// +listType=map
	// +listMapKey=name
	Headers []SourceHeader `json:"headers,omitempty"`
	// How far teams' own queries (CustomMetric, ExternalMetric) see.
	// +optional
	Tenancy SourceTenancy `json:"tenancy,omitzero"`
}

// SourceTLS says how the server is verified, and what is shown to it.
type SourceTLS struct {
	// Authorities, PEM, in a Secret in the backend's namespace. Default: the system's.
	// +optional
	CA *corev1.SecretKeySelector `json:"ca,omitempty"`
	// Name of a Secret of type kubernetes.io/tls for mutual TLS.
	// +optional
	ClientCertificate *corev1.LocalObjectReference `json:"clientCertificate,omitempty"`
	// Name in the server's certificate. Default: the URL's host.
	// +optional
	ServerName string `json:"serverName,omitempty"`
	// Does not verify the server: anybody on the way can read credentials and make up metrics.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// SourceAuthentication is how serving makes itself known. Secrets are read in the
// backend's namespace, and followed.
type SourceAuthentication struct {
	// +optional
	BearerToken *corev1.SecretKeySelector `json:"bearerToken,omitempty"`
	// Name of a Secret of type kubernetes.io/basic-auth.
	// +optional
	Basic *corev1.LocalObjectReference `json:"basic,omitempty"`
}

// SourceHeader is a header of each request.
type SourceHeader struct {
	Name string `json:"name"`
	// +optional
	Value string `json:"value,omitempty"`
	// +optional
	ValueFrom *corev1.SecretKeySelector `json:"valueFrom,omitempty"`
}

// SourceTenancy confines teams' queries to their namespace.
type SourceTenancy struct {
	// Label that holds the namespace of a series. Default: namespace.
	// +optional
	NamespaceLabel string `json:"namespaceLabel,omitempty"`
	// Namespaces whose queries are not confined. `*` for all. Default: none.
	// +optional
	// +listType=set
	UnconfinedNamespaces []string `json:"unconfinedNamespaces,omitempty"`
}
