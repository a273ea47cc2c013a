// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults of sources, rules and declared metrics, which repeat the
// kubebuilder:default markers.
const (
	DefaultSourceInterval              = 15 * time.Second
	DefaultSourceTimeout               = 10 * time.Second
	DefaultSeriesInterval              = time.Minute
	DefaultSeriesMaxAge                = 5 * time.Minute
	DefaultMaxResponseSize             = "32Mi"
	DefaultNamespaceLabel              = "namespace"
	DefaultFallbackAfterFailures int32 = 3
	DefaultFallbackMaxAge              = 10 * time.Minute
)

func setSourceDefaults(source *SourceSpec) {
	p := source.Prometheus
	if p == nil {
		return
	}
	setDefault(&p.Interval, metav1.Duration{Duration: DefaultSourceInterval})
	setDefault(&p.Timeout, metav1.Duration{Duration: DefaultSourceTimeout})
	setDefault(&p.SeriesInterval, metav1.Duration{Duration: DefaultSeriesInterval})
	setDefault(&p.SeriesMaxAge, metav1.Duration{Duration: DefaultSeriesMaxAge})
	if p.MaxResponseSize == "" {
		p.MaxResponseSize = DefaultMaxResponseSize
	}
	if p.Tenancy.NamespaceLabel == "" {
		p.Tenancy.NamespaceLabel = DefaultNamespaceLabel
	}
}

func setCustomMetricsDefaults(spec *CustomMetricsSpec) {
	if len(spec.Versions) == 0 {
		spec.Versions = []CustomMetricsVersion{CustomMetricsV1beta2, CustomMetricsV1beta1}
	}
}

func setExternalMetricsDefaults(spec *ExternalMetricsSpec) {
	if len(spec.Versions) == 0 {
		spec.Versions = []ExternalMetricsVersion{ExternalMetricsV1beta1}
	}
}

// SetCustomMetricDefaults fills what the CRD's schema would have filled in, and the
// metric's name.
func SetCustomMetricDefaults(metric *CustomMetric) {
	setDeclaredDefaults(metric.Name, &metric.Spec.DeclaredMetricSpec)
	if metric.Spec.Duplicates == "" {
		metric.Spec.Duplicates = DuplicatesReject
	}
}

// SetExternalMetricDefaults fills what the CRD's schema would have filled in, and the
// metric's name.
func SetExternalMetricDefaults(metric *ExternalMetric) {
	setDeclaredDefaults(metric.Name, &metric.Spec.DeclaredMetricSpec)
}

func setDeclaredDefaults(name string, spec *DeclaredMetricSpec) {
	if spec.MetricName == "" {
		spec.MetricName = name
	}
	if spec.Fallback == nil {
		return
	}
	setDefault(&spec.Fallback.AfterFailures, DefaultFallbackAfterFailures)
	if last := spec.Fallback.LastValue; last != nil {
		setDefault(&last.MaxAge, metav1.Duration{Duration: DefaultFallbackMaxAge})
	}
}
