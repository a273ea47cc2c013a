// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sourcereport builds what serving pods report of their sources and rules.
package sourcereport

import (
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// New returns a pod's report of sources and rules.
func New(change ...func(*v1alpha1.SourceReport)) *v1alpha1.SourceReport {
	report := &v1alpha1.SourceReport{Kubelets: v1alpha1.KubeletReport{Nodes: 1, Healthy: 1}, RuleCount: 50}
	for _, c := range change {
		c(report)
	}
	return report
}

// Source adds the health of a source.
func Source(health v1alpha1.SourceHealth) func(*v1alpha1.SourceReport) {
	return func(report *v1alpha1.SourceReport) { report.Sources = append(report.Sources, health) }
}

// Healthy adds a source that answers.
func Healthy(name string) func(*v1alpha1.SourceReport) {
	return Source(v1alpha1.SourceHealth{Name: name, Healthy: true})
}

// Failing adds a source that fails.
func Failing(name, reason, message string) func(*v1alpha1.SourceReport) {
	return Source(v1alpha1.SourceHealth{Name: name, Reason: reason, Message: message})
}

// Rule adds a rule, whose state follows from the reason.
func Rule(path, reason, message string) func(*v1alpha1.SourceReport) {
	return func(report *v1alpha1.SourceReport) {
		state := v1alpha1.RuleFailing
		switch {
		case strings.HasPrefix(reason, "Invalid"):
			state = v1alpha1.RuleInvalid
		case reason == "NoSeries":
			state = v1alpha1.RuleWarning
		}
		report.Rules = append(report.Rules, v1alpha1.RuleHealth{Path: path, State: state, Reason: reason, Message: message})
		if state != v1alpha1.RuleWarning {
			report.FailingRules++
		}
	}
}

// Spec sets a required source, an optional one, and rules.
func Spec(spec *v1alpha1.MetricsBackendSpec) {
	spec.Sources = []v1alpha1.SourceSpec{
		{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.example:9090"}},
		{Name: "spare", Optional: true, Prometheus: &v1alpha1.PrometheusSource{URL: "http://spare.example:9090"}},
	}
	spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{SeriesQuery: "a"}}}
}
