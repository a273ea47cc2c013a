// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SourceSpec is where metrics come from, other than kubelets. Running pods take up
// changes at once, and roll for none.
//
// +kubebuilder:validation:XValidation:rule="has(self.prometheus)",message="each of spec.sources needs one kind of source: set prometheus with its url"
type SourceSpec struct {
	// Name by which rules and metrics name the source: lower case letters, digits
	// and '-'.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
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
//
// +kubebuilder:validation:XValidation:rule="duration(self.seriesMaxAge) >= duration(self.seriesInterval)",message="seriesMaxAge must not be shorter than seriesInterval, or series would be missed between two looks: raise seriesMaxAge, whose default is 5m"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !self.url.startsWith('http:')",message="tls has an effect with an https:// URL only: correct the url, or take tls out"
// +kubebuilder:validation:XValidation:rule="!has(self.authentication) || !has(self.headers) || self.headers.all(h, h.name.lowerAscii() != 'authorization')",message="authentication and a header named Authorization exclude each other: remove one of them"
type PrometheusSource struct {
	// URL of the server, http:// or https://, with the prefix of its paths: what
	// comes before `/api/v1`. For Mimir that is `https://HOST/prometheus`, for
	// VictoriaMetrics' cluster `http://HOST:8481/select/TENANT/prometheus`. A Service
	// is reached as `http://NAME.NAMESPACE.svc:PORT`. No user, query or fragment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https?://[^/?#@]+(/[^?#]*)?$')",message="url must be http:// or https://, a host, and optionally a port and the path before /api/v1, without user, query and fragment: credentials belong into authentication, a tenant into headers"
	URL string `json:"url"`

	// Time between two evaluations of a query, for all clients, watches and
	// autoscalers together, and so the greatest age of an answer. A rule or a metric
	// may have its own. A duration from 1s to 1h. Default: 15s.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be between 1s and 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Time after which a query is given up, the wait for its turn included; the
	// server is told (parameter `timeout`). A query that has begun runs on when clients
	// leave earlier: its answer is for who asks next. A duration from 100ms to 1m.
	// Default: 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="timeout must be between 100ms and 1m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Time between two looks for new series, which is how soon a metric that rules
	// make of them appears. A duration from 5s to 1h. Default: 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="seriesInterval must be between 5s and 1h"
	SeriesInterval *metav1.Duration `json:"seriesInterval,omitempty"`

	// How far back series are looked for, and so how long a metric stays in
	// discovery after its last series ended. A duration from seriesInterval to 24h.
	// Default: 5m.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="seriesMaxAge must be at most 24h"
	SeriesMaxAge *metav1.Duration `json:"seriesMaxAge,omitempty"`

	// Most bytes of an answer to a query, after decompression: a larger one fails that
	// query. Series that rules look up are not bounded by it. From 64Ki to 256Mi.
	// Default: 32Mi.
	// +optional
	// +kubebuilder:default="32Mi"
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,8}(Ki|Mi)?$`
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="!isQuantity(self) || (quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('256Mi')) <= 0)",message="maxResponseSize must be between 64Ki and 256Mi"
	MaxResponseSize string `json:"maxResponseSize,omitempty"`

	// How the server is verified, and what is shown to it, with an https URL.
	// Default: the authorities of the serving image.
	// +optional
	TLS SourceTLS `json:"tls,omitzero"`

	// How serving makes itself known to the server. Default: it does not.
	// +optional
	Authentication SourceAuthentication `json:"authentication,omitzero"`

	// Headers of each request, such as a tenant's (`X-Scope-OrgID`). Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Headers []SourceHeader `json:"headers,omitempty"`

	// How far teams' own queries (CustomMetric, ExternalMetric) see.
	// +optional
	// +kubebuilder:default={}
	Tenancy SourceTenancy `json:"tenancy,omitzero"`
}

// SecretReference names a Secret in the namespace that the serving component runs in.
type SecretReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// SecretKeyReference names a key of a Secret in the namespace that the serving
// component runs in.
type SecretKeyReference struct {
	SecretReference `json:",inline"`
	// Key in the Secret's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// SourceTLS says how the server is verified, and what is shown to it. Secrets are
// read in the namespace of the serving component, and followed: what rotates in them
// is used from the next connection on.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ca) || !has(self.insecureSkipVerify) || !self.insecureSkipVerify",message="tls.ca and tls.insecureSkipVerify exclude each other: remove one of them"
type SourceTLS struct {
	// Key of a Secret with the authorities, PEM, that sign the server's certificate.
	// Default: the authorities of the serving image.
	// +optional
	CA *SecretKeyReference `json:"ca,omitempty"`

	// Secret of type kubernetes.io/tls with a certificate for mutual TLS.
	// Default: none is shown.
	// +optional
	ClientCertificate *SecretReference `json:"clientCertificate,omitempty"`

	// Name in the server's certificate. Default: the URL's host.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// Does not verify the server: anybody on the way can read credentials and make
	// up metrics. Default: false.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// SourceAuthentication is how serving makes itself known. Secrets are read in the
// namespace of the serving component, and followed.
//
// +kubebuilder:validation:XValidation:rule="has(self.bearerToken) != has(self.basic)",message="authentication needs bearerToken or basic, and not both"
type SourceAuthentication struct {
	// Key of a Secret with a bearer token. Default: none.
	// +optional
	BearerToken *SecretKeyReference `json:"bearerToken,omitempty"`

	// Secret of type kubernetes.io/basic-auth: keys username and password. Default: none.
	// +optional
	Basic *SecretReference `json:"basic,omitempty"`
}

// SourceHeader is a header of each request: its value is here or in a Secret.
//
// +kubebuilder:validation:XValidation:rule="!has(self.value) || !(self.name.lowerAscii() in ['apikey', 'api-key', 'authorization', 'cookie', 'proxy-authorization', 'x-api-key', 'x-auth-token'])",message="whoever may read MetricsBackends would see this header's credentials: put the value into a Secret and name it in valueFrom"
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="each of headers needs value or valueFrom, and not both"
type SourceHeader struct {
	// Name of the header.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-!#$%&'*+.^_|~0-9a-zA-Z]+$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['accept-encoding', 'connection', 'content-encoding', 'content-length', 'content-type', 'host', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'user-agent'])",message="this header is set by the client itself: take it out of headers"
	Name string `json:"name"`

	// Value, for what is no secret: whoever may read MetricsBackends sees it. Headers
	// that hold credentials (Authorization, Proxy-Authorization, Cookie, X-Api-Key,
	// Api-Key, Apikey, X-Auth-Token) need valueFrom.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0a-\x1f\x7f]*$`
	Value string `json:"value,omitempty"`

	// Key of a Secret that holds the value; followed. A line end at its end is left out.
	// +optional
	ValueFrom *SecretKeyReference `json:"valueFrom,omitempty"`
}

// SourceTenancy confines teams' queries to their namespace.
type SourceTenancy struct {
	// Label that holds the namespace of a series. Each selector of a team's query
	// gets a matcher of it. Default: namespace.
	// +optional
	// +kubebuilder:default=namespace
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	NamespaceLabel string `json:"namespaceLabel,omitempty"`

	// Namespaces whose teams may query series of every namespace. `*` for all.
	// Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	UnconfinedNamespaces []string `json:"unconfinedNamespaces,omitempty"`
}

// Secrets returns the names of the Secrets that the source reads, sorted, each once.
func (s *SourceSpec) Secrets() []string {
	return SourceSecrets([]SourceSpec{*s})
}
