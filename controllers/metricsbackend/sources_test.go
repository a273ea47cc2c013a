// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
)

// sourceReport is one pod's report of sources and rules.
func sourceReport(change ...func(*v1alpha1.SourceReport)) *v1alpha1.SourceReport {
	report := &v1alpha1.SourceReport{Kubelets: v1alpha1.KubeletReport{Nodes: 1, Healthy: 1}, RuleCount: 50}
	for _, c := range change {
		c(report)
	}
	return report
}

func withSource(health v1alpha1.SourceHealth) func(*v1alpha1.SourceReport) {
	return func(report *v1alpha1.SourceReport) { report.Sources = append(report.Sources, health) }
}

func healthySource(name string) func(*v1alpha1.SourceReport) {
	return withSource(v1alpha1.SourceHealth{Name: name, Healthy: true})
}

func failingSource(name, reason, message string) func(*v1alpha1.SourceReport) {
	return withSource(v1alpha1.SourceHealth{Name: name, Reason: reason, Message: message})
}

func withRule(path, reason, message string) func(*v1alpha1.SourceReport) {
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

// withSources is a spec with a required source, an optional one, and rules.
func withSources(spec *v1alpha1.MetricsBackendSpec) {
	spec.Sources = []v1alpha1.SourceSpec{
		{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.example:9090"}},
		{Name: "spare", Optional: true, Prometheus: &v1alpha1.PrometheusSource{URL: "http://spare.example:9090"}},
	}
	spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{Rules: []v1alpha1.MetricRule{{SeriesQuery: "a"}}}
}

// An invalid rule is reported in Ready, and breaks nothing else.
func TestInvalidRuleStalls(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.change(withSources)
	fc.sources = sourceReport(healthySource("main"), healthySource("spare"))
	fc.reconcileUntil(r, fc.isReady)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.CustomMetrics.Rules = append(spec.CustomMetrics.Rules, v1alpha1.MetricRule{})
	})
	fc.sources = sourceReport(healthySource("main"), healthySource("spare"), withRule("spec.customMetrics.rules[0]", "InvalidMetricsQuery", "metricsQuery: unexpected }"))
	fc.oldSettings = true
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "", "does not use the settings")
	fc.oldSettings = false
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		fc.wantCondition(kind, "", v1alpha1.ReasonRulesInvalid, "spec.customMetrics.rules[0]")
	}
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	fc.sources = sourceReport(healthySource("main"), healthySource("spare"), withRule("spec.customMetrics.rules[0]", "NoSeries", "no series"))
	mustReconcile(t, r)
	if !fc.isReady() {
		t.Errorf("a rule without series:\n%s", fc.show())
	}
	fc.sources = sourceReport(healthySource("main"), healthySource("spare"), withRule("spec.customMetrics.rules[0]", "SeriesUnavailable", "slow"))
	mustReconcile(t, r)
	fc.clock.Step(reports.Grace)
	mustReconcile(t, r)
	if !fc.isReady() || fc.condition(v1alpha1.ConditionRulesReady).Status != metav1.ConditionFalse {
		t.Errorf("a rule whose source fails:\n%s", fc.show())
	}
}

// Details that change with each failure, and short failures, cause no status write.
func TestSourceStatusIsStable(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.change(withSources)
	well := func() *v1alpha1.SourceReport { return sourceReport(healthySource("main"), healthySource("spare")) }
	fc.sources = well()
	mustReconcile(t, r)
	written := fc.backend().ResourceVersion
	unwritten := func(when string) {
		t.Helper()
		mustReconcile(t, r)
		if now := fc.backend().ResourceVersion; now != written {
			t.Errorf("%s: the status was written:\n%s", when, fc.show())
			written = now
		}
	}
	unwritten("nothing happened")
	bad := func(words string) *v1alpha1.SourceReport {
		return sourceReport(failingSource("main", "Timeout", words), healthySource("spare"), withRule("spec.customMetrics.rules[0]", "SourceFailing", words))
	}
	fc.sources = bad("try 1")
	unwritten("one failure")
	fc.sources = well()
	unwritten("it is over")
	// Each failure has its own grace period.
	fc.clock.Step(time.Hour)
	fc.sources = bad("try 2")
	unwritten("another failure")
	fc.clock.Step(reports.Grace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, "", "try 2")
	fc.wantCondition(v1alpha1.ConditionRulesReady, metav1.ConditionFalse, "", "try 2")
	written = fc.backend().ResourceVersion
	for i := range 4 {
		fc.sources = bad(fmt.Sprintf("try %d", 3+i))
		unwritten("other words")
		fc.clock.Step(time.Minute)
	}
	fc.clock.Step(reports.MessageGrace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, "", "", "try 6")
	fc.sources = well()
	mustReconcile(t, r)
	if c := fc.condition(v1alpha1.ConditionSourcesHealthy); c.Status != metav1.ConditionTrue || !fc.backend().Status.Sources[0].Healthy {
		t.Errorf("not reported that it is over: %+v", c)
	}
	fc.wantCondition(v1alpha1.ConditionRulesReady, metav1.ConditionTrue, "")
}

// A kubelet that fails once causes no write of a healthy backend's status.
func TestSourcesGrace(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.report = v1alpha1.KubeletReport{Nodes: 3, Healthy: 2, Failures: []v1alpha1.KubeletFailure{{Reason: v1alpha1.ScrapeTimeout, Count: 1, Nodes: []string{"a"}}}}
	before := fc.backend().ResourceVersion
	mustReconcile(t, r)
	if after := fc.backend().ResourceVersion; after != before {
		t.Errorf("the status was written:\n%s", fc.show())
	}
	fc.clock.Step(reports.Grace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, "")
	if !fc.isReady() {
		t.Error("a node that is down made the backend unready")
	}
	fc.wantCondition(v1alpha1.ConditionReady, "", "", "not all sources are healthy: see SourcesHealthy")
	fc.report = v1alpha1.KubeletReport{Nodes: 3, Healthy: 3}
	mustReconcile(t, r)
	before = fc.backend().ResourceVersion
	for _, node := range []string{"a", "b"} {
		fc.report.PodsWithoutMetrics, fc.report.NodesWithoutPodMetrics = 1, []string{node}
		mustReconcile(t, r)
		if after := fc.backend().ResourceVersion; after != before {
			t.Errorf("the status was written for one pod of node %s:\n%s", node, fc.show())
		}
	}
	fc.clock.Step(reports.MessageGrace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionTrue, "", "(first nodes: b)")
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionTrue, "")
	if message := fc.condition(v1alpha1.ConditionReady).Message; message != "all components match the spec" {
		t.Errorf("Ready says %q", message)
	}
}
