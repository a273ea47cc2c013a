// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labels and names on which the operator and the serving component agree.
const (
	// LabelBackend names the MetricsBackend that owns an object. It is the mark
	// of ownership: every sweep goes by it, never by a list of known objects.
	LabelBackend = "metricsbackend.io/backend"
	// Finalizer keeps a MetricsBackend until its children are gone in order.
	Finalizer = "metricsbackend.io/ordered-removal"
	// FieldOwner is the operator's name in server-side apply.
	FieldOwner = "metrics-backend-operator"

	// SourcesPath is the path at which a serving pod answers a SourceReport
	// as JSON. It needs the verb get on this non-resource URL.
	SourcesPath = "/sources"
	// DeclaredPath is the path at which a serving pod answers a DeclaredReport as
	// JSON. It needs the verb get on this non-resource URL.
	DeclaredPath = "/declared"

	// AnnotationMetricsPath on a Node overrides the path of its kubelet's
	// metrics. The name is metrics-server's, so that annotations keep working.
	AnnotationMetricsPath = "metrics.k8s.io/resource-metrics-path"
)

// Keys of the serving Secret, which is mounted as a directory.
const (
	// SecretKeyCertificate is the serving certificate, PEM, leaf first.
	SecretKeyCertificate = "tls.crt"
	// SecretKeyPrivateKey is its private key, PEM.
	SecretKeyPrivateKey = "tls.key"
	// SecretKeyCA is the bundle of authorities to verify the certificate with, PEM.
	SecretKeyCA = "ca.crt"
)

// Of the Secret with the managed authority, which no pod mounts.
const (
	// SecretKeyNextCertificate and SecretKeyNextPrivateKey hold the authority that
	// takes over once every kube-apiserver trusts it.
	SecretKeyNextCertificate = "next.crt"
	SecretKeyNextPrivateKey  = "next.key"
	// AnnotationRotated is the last spec.serving.certificates.rotate that was heeded.
	AnnotationRotated = "metricsbackend.io/rotated"
)

// SourceReport is how a serving pod sees its sources, answered at SourcesPath.
// +kubebuilder:object:generate=false
type SourceReport struct {
	// ObservedGeneration is the MetricsBackend's generation whose settings are
	// in force; 0 while the pod runs on defaults.
	ObservedGeneration int64 `json:"observedGeneration"`
	// Kubelets sums up the scrapes of all selected nodes.
	Kubelets KubeletReport `json:"kubelets"`
	// Sources are those of spec.sources, in its order.
	Sources []SourceHealth `json:"sources,omitempty"`
	// Rules that are not as they should be, the worst first; at most 50.
	Rules []RuleHealth `json:"rules,omitempty"`
	// RuleCount and FailingRules count all rules, and those that fail.
	RuleCount    int `json:"ruleCount,omitempty"`
	FailingRules int `json:"failingRules,omitempty"`
	// CustomMetrics and ExternalMetrics count the metrics that exist now.
	CustomMetrics   int `json:"customMetrics,omitempty"`
	ExternalMetrics int `json:"externalMetrics,omitempty"`
}

// SourceHealth is how one of spec.sources does, as a serving pod sees it.
// +kubebuilder:object:generate=false
type SourceHealth struct {
	// Name of the source.
	Name string `json:"name"`
	// Healthy says that its newest answer was good; false before the first.
	Healthy bool `json:"healthy"`
	// Reason and Message tell of the newest failure, in the source's own words where
	// it said any.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when that state began.
	Since metav1.Time `json:"since,omitzero"`
}

// RuleHealth is what is wrong with a rule.
// +kubebuilder:object:generate=false
type RuleHealth struct {
	// Path of the rule, such as spec.customMetrics.rules[3].
	Path string `json:"path"`
	// State tells whether the rule makes no metrics because of it.
	State RuleState `json:"state,omitempty"`
	// Reason is a word in CamelCase, and Message a sentence that says what to do.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// DeclaredReport is how a serving pod sees the CustomMetrics and ExternalMetrics.
// +kubebuilder:object:generate=false
type DeclaredReport struct {
	Metrics []DeclaredHealth `json:"metrics,omitempty"`
}

// DeclaredHealth is how one declared metric does.
// +kubebuilder:object:generate=false
type DeclaredHealth struct {
	// Kind is CustomMetric or ExternalMetric.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Generation that is in force.
	Generation int64 `json:"generation"`
	// Ready says that the newest evaluation gave values; Fallback that others stand
	// in for them.
	Ready    bool `json:"ready"`
	Fallback bool `json:"fallback,omitempty"`
	// Reason and Message say why it is not ready, in the source's own words.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Value is the value where there is one; Values is how many there are.
	Value  string      `json:"value,omitempty"`
	Values int         `json:"values,omitempty"`
	Time   metav1.Time `json:"time,omitzero"`
}

// KubeletReport sums up the newest scrape of each selected node.
// +kubebuilder:object:generate=false
type KubeletReport struct {
	// Nodes is the number of nodes that match the selector.
	Nodes int `json:"nodes"`
	// Healthy is the number of nodes whose newest scrape succeeded.
	Healthy int `json:"healthy"`
	// Pending is the number of nodes that were not asked yet.
	Pending int `json:"pending"`
	// NewestSample is the time of the newest node sample; zero when there is none.
	NewestSample metav1.Time `json:"newestSample,omitzero"`
	// Failures groups the nodes whose newest scrape failed, most nodes first.
	Failures []KubeletFailure `json:"failures,omitempty"`
}

// KubeletFailure is one kind of failure and the nodes that show it.
// +kubebuilder:object:generate=false
type KubeletFailure struct {
	// Reason is one of the ScrapeReason constants.
	Reason ScrapeReason `json:"reason"`
	// Count is the number of nodes.
	Count int `json:"count"`
	// Nodes holds the first names in order, at most five.
	Nodes []string `json:"nodes"`
	// Message is the error of the first of them.
	Message string `json:"message"`
}

// ScrapeReason classifies a failed scrape. It is also a metric label's value.
type ScrapeReason string

const (
	// ScrapeNoAddress means: the node cannot be addressed; it has no address of
	// the wanted types, or its annotation names a path that is none.
	ScrapeNoAddress ScrapeReason = "NoAddress"
	// ScrapeConnectionFailed means: no connection, or it broke.
	ScrapeConnectionFailed ScrapeReason = "ConnectionFailed"
	// ScrapeTimeout means: no complete answer within scrape.timeout.
	ScrapeTimeout ScrapeReason = "Timeout"
	// ScrapeCertificateUntrusted means: not signed by the CA, for another address, or expired.
	ScrapeCertificateUntrusted ScrapeReason = "CertificateUntrusted"
	// ScrapeCertificateChanged means: not the certificate that was pinned.
	ScrapeCertificateChanged ScrapeReason = "CertificateChanged"
	// ScrapeUnauthorized means: HTTP 401, the kubelet does not accept serving's token.
	ScrapeUnauthorized ScrapeReason = "Unauthorized"
	// ScrapeForbidden means: HTTP 403, serving's account lacks nodes/metrics.
	ScrapeForbidden ScrapeReason = "Forbidden"
	// ScrapeBadStatus means: any other HTTP status than 200.
	ScrapeBadStatus ScrapeReason = "BadStatus"
	// ScrapeBodyTooLarge means: the body is longer than scrape.maxBodySize.
	ScrapeBodyTooLarge ScrapeReason = "BodyTooLarge"
	// ScrapeMalformedBody means: nothing usable in the body.
	ScrapeMalformedBody ScrapeReason = "MalformedBody"
)
