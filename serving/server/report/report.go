// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report builds the reports that a serving pod gives to the operator: how its
// sources, rules and declared metrics do, and which clients it has.
package report

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// maxRules limits the rules in a report.
const maxRules = 50

// Reporter builds reports.
type Reporter struct {
	Catalog   *rules.Catalog
	Evaluator *query.Evaluator
	Clock     clock.PassiveClock
	// ObservedGeneration is that of the MetricsBackend whose settings are applied.
	ObservedGeneration func() int64
	Kubelets           func() v1alpha1.KubeletReport
	Sources            func() []v1alpha1.SourceHealth
	// ResourceRules returns the problems of resource rules, how many rules there are, and
	// how many of them fail.
	ResourceRules func() (problems []v1alpha1.RuleHealth, count, failing int)
	// Routes returns the same for routes.
	Routes func() (problems []v1alpha1.RuleHealth, count, failing int)

	queries queryLog
}

// SourceReport returns how sources and rules do.
func (r *Reporter) SourceReport() v1alpha1.SourceReport {
	observed := r.ObservedGeneration() // first: what follows is at least of these settings
	h := r.Catalog.Health()
	sources := r.Sources()
	problems, count, failing := r.ResourceRules()
	routes, routeCount, failingRoutes := r.Routes()
	// Failures come before warnings, so that many warnings never hide the one rule that
	// fails. Among equals, resource rules come first, since autoscaling on CPU needs them,
	// and problems of evaluated queries come before those of rules.
	all := slices.Concat(problems, r.Catalog.QueryProblems(r.Clock.Now(), healthySince(sources)), routes, h.Rules)
	slices.SortStableFunc(all, func(a, b v1alpha1.RuleHealth) int { return cmp.Compare(a.State.Severity(), b.State.Severity()) })
	return v1alpha1.SourceReport{
		ObservedGeneration: observed,
		Kubelets:           r.Kubelets(),
		Sources:            sources,
		Rules:              all[:min(len(all), maxRules)],
		RuleCount:          h.Count + count + routeCount,
		FailingRules:       h.Failing + failing + failingRoutes,
		CustomMetrics:      h.CustomMetrics,
		ExternalMetrics:    h.ExternalMetrics,
	}
}

// healthySince returns a function that reports whether a source has been healthy since an
// instant.
func healthySince(sources []v1alpha1.SourceHealth) func(string, time.Time) bool {
	return func(source string, at time.Time) bool {
		return slices.ContainsFunc(sources, func(s v1alpha1.SourceHealth) bool {
			return s.Name == source && s.Healthy && !s.Since.Time.After(at)
		})
	}
}
