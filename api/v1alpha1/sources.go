// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SourceSpec is a source of metrics other than kubelets. Running pods apply changes
// without a restart.
//
// +kubebuilder:validation:XValidation:rule="has(self.prometheus) != has(self.metricsAPI)",message="each of spec.sources needs one kind of source: set either prometheus with its url, or metricsAPI with the Service of another implementation"
type SourceSpec struct {
	// Name of the source in rules and metrics: lower case letters, digits and '-'.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// While a source fails that is not optional, the condition SourcesHealthy is False,
	// and a new pod waits up to 30s for it before it becomes ready. An optional source is
	// only reported in status.sources. No source makes a ready pod unready, since the other
	// APIs still work. Default: false.
	// +optional
	Optional bool `json:"optional,omitempty"`

	// A server with the HTTP API of Prometheus, such as Prometheus, Thanos, Mimir or
	// VictoriaMetrics. Either prometheus or metricsAPI is required. Default: none.
	// +optional
	Prometheus *PrometheusSource `json:"prometheus,omitempty"`

	// Another implementation of the custom or external metrics API, such as KEDA's adapter,
	// Datadog's cluster agent or prometheus-adapter. Requests that a route leads to it are
	// passed on. Either prometheus or metricsAPI is required. Default: none.
	// +optional
	MetricsAPI *MetricsAPISource `json:"metricsAPI,omitempty"`
}

// PartialResponsePolicy is what happens to a response that lacks data.
// +kubebuilder:validation:Enum=Reject;Accept
type PartialResponsePolicy string

const (
	// PartialResponseReject has the query fail.
	PartialResponseReject PartialResponsePolicy = "Reject"
	// PartialResponseAccept uses the data that is there.
	PartialResponseAccept PartialResponsePolicy = "Accept"
)

// PrometheusSource is a server with Prometheus' HTTP API.
//
// +kubebuilder:validation:XValidation:rule="duration(self.seriesLookback) >= duration(self.seriesInterval)",message="seriesLookback must not be shorter than seriesInterval, or series would be missed between two looks: raise seriesLookback, whose default is 5m"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !self.url.startsWith('http:')",message="tls has an effect with an https:// URL only: correct the url, or take tls out"
// +kubebuilder:validation:XValidation:rule="!has(self.authentication) || !has(self.headers) || self.headers.all(h, h.name.lowerAscii() != 'authorization')",message="authentication and a header named Authorization exclude each other: remove one of them"
type PrometheusSource struct {
	// URL of the server, http:// or https://, up to `/api/v1`: for a Service
	// `http://NAME.NAMESPACE.svc:PORT`, for Mimir `https://HOST/prometheus`, for a
	// VictoriaMetrics cluster `http://HOST:8481/select/TENANT/prometheus`. It must not have
	// user, query or fragment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && self.matches('^https?://[^/?#@]+(/[^?#]*)?$')",message="url must be http:// or https://, a host, and optionally a port and the path before /api/v1, without user, query and fragment: credentials belong into authentication, a tenant into headers"
	URL string `json:"url"`

	// Time between two evaluations of a query, and so the maximum age of its result; all
	// clients, watches and autoscalers share it. A rule or metric can override it. A
	// duration from 1s to 1h. Default: 15s.
	// +optional
	// +kubebuilder:default="15s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="interval must be between 1s and 1h"
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Timeout of a query, including its time in the queue; it is also sent to the server
	// (parameter `timeout`). A query continues when its clients disconnect, since its
	// result is used for the next request. A duration from 100ms to 1m. Default: 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1m')",message="timeout must be between 100ms and 1m"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Time between two searches for series that match rules, and so the time until the
	// metrics of new series appear. A duration from 5s to 1h. Default: 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="seriesInterval must be between 5s and 1h"
	SeriesInterval *metav1.Duration `json:"seriesInterval,omitempty"`

	// Time range of the search for series, and so how long a metric stays in discovery
	// after its last series ended. A duration from seriesInterval to 24h. Default: 5m.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('24h')",message="seriesLookback must be at most 24h"
	SeriesLookback *metav1.Duration `json:"seriesLookback,omitempty"`

	// Maximum size of the response to a query in bytes after decompression, with Ki or Mi;
	// a query with a larger one fails. It does not limit searches for series. From 64Ki to
	// 256Mi. Default: 32Mi.
	// +optional
	// +kubebuilder:default="32Mi"
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,8}(Ki|Mi)?$`
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="!isQuantity(self) || (quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('256Mi')) <= 0)",message="maxResponseSize must be between 64Ki and 256Mi"
	MaxResponseSize string `json:"maxResponseSize,omitempty"`

	// What happens to a response that lacks data because a part of the server did not
	// answer, such as a store of Thanos, a storage node of VictoriaMetrics, or remote read of
	// Prometheus. Reject: the query fails with the reason PartialResponse, and autoscalers
	// keep their scale. Accept: the values are those of the other parts, with a warning; a
	// sum is too low, and autoscalers may scale down. Default: Reject.
	// +optional
	// +kubebuilder:default=Reject
	PartialResponsePolicy PartialResponsePolicy `json:"partialResponsePolicy,omitempty"`

	// How the server is verified, and the client certificate, with an https URL. Default:
	// the public CA certificates in serving, no client certificate.
	// +optional
	TLS SourceTLS `json:"tls,omitzero"`

	// How serving authenticates to the server. Default: it does not.
	// +optional
	Authentication SourceAuthentication `json:"authentication,omitzero"`

	// Headers to add to each request, such as `X-Scope-OrgID` for a tenant; at most 32.
	// Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(h, self.exists_one(o, o.name.lowerAscii() == h.name.lowerAscii()))",message="headers must not have the same name twice, whatever its case"
	Headers []SourceHeader `json:"headers,omitempty"`

	// Parameters to add to each request, such as `latency_offset` of VictoriaMetrics or
	// `dedup` of Thanos; at most 32, of which several may have the same name. Default: none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +listMapKey=value
	// +kubebuilder:validation:MaxItems=32
	QueryParameters []SourceQueryParameter `json:"queryParameters,omitempty"`

	// Which series the queries of CustomMetrics and ExternalMetrics can select. Default:
	// those of their own namespace, by the label namespace.
	// +optional
	// +kubebuilder:default={}
	Tenancy SourceTenancy `json:"tenancy,omitzero"`
}

// SecretReference names a Secret in the namespace of the serving component.
type SecretReference struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
}

// SecretKeyReference names a key of a Secret in the namespace of the serving component.
type SecretKeyReference struct {
	SecretReference `json:",inline"`
	// Key in the Secret's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// ConfigMapKeyReference names a key of a ConfigMap in the namespace of the serving component.
type ConfigMapKeyReference struct {
	// Name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`
	// Key in the ConfigMap's data.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// SourceTLS says how the server is verified, and has the client certificate. Secrets and
// ConfigMaps are in the namespace of the serving component. They are watched: changed
// contents are used from the next request on.
//
// +kubebuilder:validation:XValidation:rule="[has(self.caSecretKeyRef), has(self.caConfigMapKeyRef), has(self.insecureSkipTLSVerify) && self.insecureSkipTLSVerify].filter(set, set).size() <= 1",message="tls.caSecretKeyRef, tls.caConfigMapKeyRef and tls.insecureSkipTLSVerify exclude each other: keep one of them"
type SourceTLS struct {
	// Key of a Secret with the CA certificates in PEM that verify the server's
	// certificate. Only one of caSecretKeyRef and caConfigMapKeyRef can be set. Default: the
	// public CA certificates in serving, or those that SSL_CERT_FILE or SSL_CERT_DIR in its
	// environment name, and those of serving.caConfigMapKeyRef.
	// +optional
	CASecretKeyRef *SecretKeyReference `json:"caSecretKeyRef,omitempty"`

	// Like caSecretKeyRef, but a key of a ConfigMap, such as a bundle that trust-manager distributes,
	// or the cluster's own CA in ca.crt of kube-root-ca.crt. Default: as for
	// caSecretKeyRef.
	// +optional
	CAConfigMapKeyRef *ConfigMapKeyReference `json:"caConfigMapKeyRef,omitempty"`

	// Secret of type kubernetes.io/tls with a client certificate for mutual TLS. Default:
	// none.
	// +optional
	ClientCertificateSecretRef *SecretReference `json:"clientCertificateSecretRef,omitempty"`

	// Name that the server's certificate must be valid for. Default: the URL's host, of a
	// metricsAPI NAME.NAMESPACE.svc of its Service.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServerName string `json:"serverName,omitempty"`

	// Disables verification of the server: an attacker on the network path can read
	// credentials and forge metrics. Default: false.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}

// SourceHeader is a header of each request. Its value is given here or in a Secret.
//
// +kubebuilder:validation:XValidation:rule="!has(self.value) || !(self.name.lowerAscii() in ['apikey', 'api-key', 'authorization', 'cookie', 'proxy-authorization', 'x-api-key', 'x-auth-token'])",message="everyone who can read MetricsBackends would see this header's credentials: put the value into a Secret and name it in valueSecretKeyRef"
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueSecretKeyRef)",message="each of headers needs value or valueSecretKeyRef, and not both"
type SourceHeader struct {
	// Name of the header.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-!#$%&'*+.^_|~0-9a-zA-Z]+$`
	// +kubebuilder:validation:XValidation:rule="!(self.lowerAscii() in ['accept-encoding', 'connection', 'content-encoding', 'content-length', 'content-type', 'expect', 'host', 'keep-alive', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'user-agent'])",message="this header is set by the client itself: take it out of headers"
	Name string `json:"name"`

	// Value of the header, visible to everyone who can read MetricsBackends. Headers with
	// credentials (Authorization, Proxy-Authorization, Cookie, X-Api-Key, Api-Key, Apikey,
	// X-Auth-Token) need valueSecretKeyRef. Either value or valueSecretKeyRef is required. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[^\x00-\x08\x0a-\x1f\x7f]*$`
	Value string `json:"value,omitempty"`

	// Key of a Secret with the value. The Secret is watched. A trailing newline is removed.
	// Either value or valueSecretKeyRef is required. Default: none.
	// +optional
	ValueSecretKeyRef *SecretKeyReference `json:"valueSecretKeyRef,omitempty"`
}

// SourceQueryParameter is a parameter of each request, for values and for series.
type SourceQueryParameter struct {
	// Name of the parameter; upper and lower case differ. Those that serving sets itself
	// (query, time, timeout, match[], start, end) and limit, which would cut results, are
	// refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+(\[\])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['end', 'limit', 'match', 'match[]', 'query', 'start', 'time', 'timeout'])",message="this parameter is set by serving itself, or would cut results: take it out of queryParameters"
	Name string `json:"name"`

	// Value of the parameter, visible to everyone who can read MetricsBackends: credentials
	// belong into authentication or headers.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value"`
}

// SourceTenancy restricts the queries of CustomMetrics and ExternalMetrics to series of
// their own namespace.
type SourceTenancy struct {
	// Label whose value is the namespace of a series. A matcher for it is added to each
	// selector in the queries of CustomMetrics and ExternalMetrics. Default: namespace.
	// +optional
	// +kubebuilder:default=namespace
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	NamespaceLabel string `json:"namespaceLabel,omitempty"`

	// Namespaces whose CustomMetrics and ExternalMetrics can select series of all
	// namespaces; `*` means every namespace. At most 1000. Default: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`
	TrustedNamespaces []string `json:"trustedNamespaces,omitempty"`
}
