// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// MetricsAPIAccountSuffix follows the name of the Service of serving in that of the ServiceAccount
// whose tokens other implementations of a metrics API get.
const MetricsAPIAccountSuffix = "-metricsapi"

// LeadsBack is in the message of a request with a token for other implementations that came to a
// MetricsBackend: passed on, it could go round forever.
const LeadsBack = "leads back to a MetricsBackend"

// MetricsAPIGroup is an API group whose metrics have no fixed names.
// +kubebuilder:validation:Enum=custom.metrics.k8s.io;external.metrics.k8s.io
type MetricsAPIGroup string

// Groups of a MetricsAPISource.
const (
	CustomMetricsGroup   MetricsAPIGroup = "custom.metrics.k8s.io"
	ExternalMetricsGroup MetricsAPIGroup = "external.metrics.k8s.io"
)

// MetricsAPISource is another implementation of a metrics API. It gets tokens of the ServiceAccount
// metrics-serving-NAME-metricsapi in the namespace of the serving component, where NAME is that of the
// MetricsBackend. They allow to get and list custom.metrics.k8s.io and external.metrics.k8s.io, and
// nothing else. A MetricsBackend refuses them, so a source must not lead back to one.
type MetricsAPISource struct {
	// Service of the implementation, as in its APIService. Its cluster IP is read from
	// kube-apiserver; a Service of type ExternalName is followed.
	// +required
	Service ExistingService `json:"service"`

	// API group that it serves: custom.metrics.k8s.io or external.metrics.k8s.io. An
	// implementation that serves both is two sources.
	// +required
	Group MetricsAPIGroup `json:"group"`

	// How its certificate is verified, for the name NAME.NAMESPACE.svc of the Service. An
	// implementation that makes a certificate at each start, and has insecureSkipTLSVerify in
	// its APIService, needs insecureSkipTLSVerify. Default: the public CA certificates in
	// serving.
	// +optional
	TLS SourceTLS `json:"tls,omitzero"`
}
