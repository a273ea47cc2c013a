// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels and names that the operator and the serving component share.
const (
	// LabelBackend names the MetricsBackend that owns an object. It alone defines
	// ownership: objects are pruned by this label, not by a list of known names.
	LabelBackend = "metricsbackend.io/backend"
	// LabelInstallation on an object outside of serving's namespace names the operator that
	// applied it, by its namespace. status.installation alone decides which operator that
	// is; the label restores it when a status is lost.
	LabelInstallation = "metricsbackend.io/installation"
	// Finalizer keeps a MetricsBackend until its objects are removed in order.
	Finalizer = "metricsbackend.io/ordered-removal"
	// FieldOwner is the operator's name in server-side apply.
	FieldOwner = "metrics-backend-operator"

	// SourcesPath is the path at which a serving pod returns a SourceReport as JSON.
	// Clients need the verb get on this non-resource URL.
	SourcesPath = "/sources"
	// DeclaredPath is the path at which a serving pod returns a DeclaredReport as JSON.
	// Clients need the verb get on this non-resource URL.
	DeclaredPath = "/declared"

	// NoMetrics is in discovery of custom.metrics.k8s.io (of namespaces) and external.metrics.k8s.io
	// while they have no metric, since clients do not cache a version without resources. It is
	// the name of no metric.
	NoMetrics = "no-metrics"

	// AnnotationMetricsPath on a Node overrides the path of its kubelet's metrics.
	// metrics-server has the same annotation.
	AnnotationMetricsPath = "metrics.k8s.io/resource-metrics-path"
)

// Keys of the serving Secret, which is mounted as a directory.
const (
	// SecretKeyCertificate is the serving certificate, PEM, leaf first.
	SecretKeyCertificate = "tls.crt"
	// SecretKeyPrivateKey is its private key, PEM.
	SecretKeyPrivateKey = "tls.key"
	// SecretKeyCA is the bundle of CA certificates that verify the certificate, PEM.
	SecretKeyCA = "ca.crt"
)

// Keys and annotations of the Secret with the managed CA, which no pod mounts.
const (
	// SecretKeyNextCertificate and SecretKeyNextPrivateKey are the next CA, which is
	// used once every kube-apiserver trusts it.
	SecretKeyNextCertificate = "next.crt"
	SecretKeyNextPrivateKey  = "next.key"
	// AnnotationRotated is the last AnnotationRotate that was executed.
	AnnotationRotated = "metricsbackend.io/rotated"
)

// AnnotationRotate on a MetricsBackend rotates CA and certificate of mode Managed whenever it
// gets another text, such as a date. Its removal does nothing.
const AnnotationRotate = "metricsbackend.io/rotate-certificates"

// SourceReport is the state of a serving pod's sources. It is returned at SourcesPath.
// +kubebuilder:object:generate=false
type SourceReport struct {
	// ObservedGeneration is the generation of the MetricsBackend that the pod uses, or
	// 0 while it runs on defaults.
	ObservedGeneration int64 `json:"observedGeneration"`
	// Kubelets summarizes the scrapes of all selected nodes.
	Kubelets KubeletReport `json:"kubelets"`
	// Sources are spec.sources, in its order.
	Sources []SourceHealth `json:"sources,omitempty"`
	// Rules are the problems of rules, most severe first; at most 50.
	Rules []RuleHealth `json:"rules,omitempty"`
	// RuleCount and FailingRules are the numbers of all rules and of failing ones.
	RuleCount    int `json:"ruleCount,omitempty"`
	FailingRules int `json:"failingRules,omitempty"`
	// CustomMetrics and ExternalMetrics are the numbers of metrics that exist now.
	CustomMetrics   int `json:"customMetrics,omitempty"`
	ExternalMetrics int `json:"externalMetrics,omitempty"`
}

// SourceHealth is the state of one of spec.sources in a serving pod.
// +kubebuilder:object:generate=false
type SourceHealth struct {
	// Name of the source.
	Name string `json:"name"`
	// Healthy is true if the source answers its queries, and false before the first response.
	Healthy bool `json:"healthy"`
	// Reason and Message describe the last failure, if possible with the source's own
	// error message.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when the state last changed.
	Since metav1.Time `json:"since,omitzero"`
}

// RuleHealth is a problem of a rule.
// +kubebuilder:object:generate=false
type RuleHealth struct {
	// Path of the rule, such as spec.customMetrics.rules[3].
	Path string `json:"path"`
	// State says whether the rule produces metrics despite the problem.
	State RuleState `json:"state,omitempty"`
	// Reason is a word in CamelCase, Message a sentence that says what to do.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// DeclaredReport is the state of the CustomMetrics and ExternalMetrics in a serving pod.
// +kubebuilder:object:generate=false
type DeclaredReport struct {
	Metrics []DeclaredHealth `json:"metrics,omitempty"`
}

// DeclaredHealth is the state of a CustomMetric or ExternalMetric in a serving pod.
// +kubebuilder:object:generate=false
type DeclaredHealth struct {
	// Kind is CustomMetric or ExternalMetric.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Generation is the generation of the object that the pod uses.
	Generation int64 `json:"generation"`
	// Ready is true if the last evaluation returned values, Fallback if the values
	// come from spec.fallback.
	Ready    bool `json:"ready"`
	Fallback bool `json:"fallback,omitempty"`
	// Reason and Message say why it is not ready, with the source's own error message.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Value is the value if there is exactly one; Values is their number.
	Value  string      `json:"value,omitempty"`
	Values int         `json:"values,omitempty"`
	Time   metav1.Time `json:"time,omitzero"`
}

// ScrapeAccountVariable is the environment variable of a serving pod with the ServiceAccount,
// NAMESPACE/NAME, whose token it requests for kubelets.
const ScrapeAccountVariable = "SCRAPE_SERVICE_ACCOUNT"

// Serves reports whether serving pods answer requests for an API group, and may collect what that takes: if the spec has its
// section, or while the status has an APIService of it. Its removal takes time, and until then answers must not become empty.
func (b *MetricsBackend) Serves(group string) bool {
	return b.Spec.Section(group).Set || slices.Contains(b.RetainedGroups(), group)
}

// RetainedGroups returns the API groups that serving pods answer requests for although the spec lacks their section, once
// for each APIService.
func (b *MetricsBackend) RetainedGroups() []string {
	var groups []string
	for _, service := range b.Status.APIServices {
		_, group, _ := strings.Cut(service.Name, ".")
		if section := b.Spec.Section(group); section.Field != "" && !section.Set {
			groups = append(groups, group)
		}
	}
	return groups
}

// RenewOwnCertificate is how a kubelet gets a new certificate that it signs itself: it makes one only if there is none.
const RenewOwnCertificate = "one that the kubelet signed itself: delete kubelet.crt and kubelet.key in its --cert-dir and restart it; or serverTLSBootstrap: true"

// KubeletReport summarizes the last scrape of each selected node.
// +kubebuilder:object:generate=false
type KubeletReport struct {
	// Nodes is the number of nodes that match the selector.
	Nodes int `json:"nodes"`
	// Healthy is the number of nodes whose last scrape succeeded.
	Healthy int `json:"healthy"`
	// Pending is the number of nodes that were not scraped yet.
	Pending int `json:"pending"`
	// Verified is the number of nodes whose newest connection a CA verified, and Pinned that of
	// nodes with a pinned certificate.
	Verified int `json:"verified,omitempty"`
	Pinned   int `json:"pinned,omitempty"`
	// Expiring is the number of nodes whose pinned certificate expires within 30 days, and is refused then.
	Expiring int `json:"expiring,omitempty"`
	// NewestSample is the time of the newest node sample, or zero if there is none.
	NewestSample metav1.Time `json:"newestSample,omitzero"`
	// Failures groups the nodes whose last scrape failed, largest group first.
	Failures []KubeletFailure `json:"failures,omitempty"`

	// PodsWithoutMetrics is the number of pods that run by the newest response of their
	// kubelet, and have had no metrics for several minutes; NodesWithoutPodMetrics are the
	// first names of their nodes in sorted order, at most five.
	PodsWithoutMetrics     int      `json:"podsWithoutMetrics,omitempty"`
	NodesWithoutPodMetrics []string `json:"nodesWithoutPodMetrics,omitempty"`
	// PodPoints is the number of pods with a data point, and PodsWithoutPoint that of pods
	// that are known from metadata and have none, once a kubelet has answered for several
	// minutes. Metadata does not say whether a pod runs, or where.
	PodPoints        int64 `json:"podPoints,omitempty"`
	PodsWithoutPoint int64 `json:"podsWithoutPoint,omitempty"`
}

// KubeletFailure is one kind of failure and the nodes that have it.
// +kubebuilder:object:generate=false
type KubeletFailure struct {
	// Reason is one of the ScrapeReason constants.
	Reason ScrapeReason `json:"reason"`
	// Count is the number of nodes.
	Count int `json:"count"`
	// Nodes are the first names in sorted order, at most five.
	Nodes []string `json:"nodes"`
	// Message is the error of the first node.
	Message string `json:"message"`
	// SampleAges, with ScrapeStaleSamples only, is how old the newest sample of each of
	// Nodes was when it was scraped.
	SampleAges []metav1.Duration `json:"sampleAges,omitempty"`
}

// ScrapeReason classifies a failed scrape. It is also a metric label's value.
type ScrapeReason string

const (
	// ScrapeNoAddress means: the node has no address of the wanted types, or its
	// annotation is no valid path.
	ScrapeNoAddress ScrapeReason = "NoAddress"
	// ScrapeConnectionFailed means: the connection failed or broke.
	ScrapeConnectionFailed ScrapeReason = "ConnectionFailed"
	// ScrapeTimeout means: no complete response within scrape.timeout.
	ScrapeTimeout ScrapeReason = "Timeout"
	// ScrapeCertificateUntrusted means: the certificate is not signed by the CA, is for
	// another address, or has expired.
	ScrapeCertificateUntrusted ScrapeReason = "CertificateUntrusted"
	// ScrapeCertificateChanged means: the certificate is not the pinned one.
	ScrapeCertificateChanged ScrapeReason = "CertificateChanged"
	// ScrapeNoToken means: serving has no token to send, so that it sent nothing.
	ScrapeNoToken ScrapeReason = "NoToken"
	// ScrapeUnauthorized means: HTTP 401, the kubelet does not accept the token.
	ScrapeUnauthorized ScrapeReason = "Unauthorized"
	// ScrapeForbidden means: HTTP 403, the account of the token lacks nodes/metrics.
	ScrapeForbidden ScrapeReason = "Forbidden"
	// ScrapeBadStatus means: another HTTP status than 200.
	ScrapeBadStatus ScrapeReason = "BadStatus"
	// ScrapeBodyTooLarge means: the body is longer than scrape.maxResponseSize.
	ScrapeBodyTooLarge ScrapeReason = "BodyTooLarge"
	// ScrapeMalformedBody means: the body has no usable sample.
	ScrapeMalformedBody ScrapeReason = "MalformedBody"
	// ScrapeStaleSamples means: the newest sample is older than maxSampleAge, so that nothing of
	// the node is served: its kubelet does not renew samples, or its clock is behind.
	ScrapeStaleSamples ScrapeReason = "StaleSamples"
	// ScrapePodsWithoutMetrics means: at least half of the pods that run by the response have
	// had no metrics for several minutes. What else the response has is served.
	ScrapePodsWithoutMetrics ScrapeReason = "PodsWithoutMetrics"
)
