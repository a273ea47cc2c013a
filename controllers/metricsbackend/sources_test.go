// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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

func TestSpecSources(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reports []*v1alpha1.SourceReport
		want    conditionResult
		parts   []string
		// status is NAME HEALTHY REASON MESSAGE.
		status []string
	}{
		"both answer": {
			reports: []*v1alpha1.SourceReport{sourceReport(healthySource("main"), healthySource("spare"))},
			want:    conditionResult{status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded},
			status:  []string{"main true  ", "spare true  "},
		},
		"an optional one fails": {
			reports: []*v1alpha1.SourceReport{sourceReport(healthySource("main"), failingSource("spare", "Timeout", "no answer within 10s"))},
			want:    conditionResult{status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded},
			status:  []string{"main true  ", "spare false Timeout no answer within 10s"},
		},
		"one of three pods cannot reach it": {
			reports: []*v1alpha1.SourceReport{
				sourceReport(healthySource("main"), healthySource("spare")),
				sourceReport(failingSource("main", "ConnectionFailed", "dial: connection refused."), healthySource("spare")),
				sourceReport(healthySource("main"), healthySource("spare")),
			},
			want: conditionResult{status: metav1.ConditionFalse, reason: v1alpha1.ReasonSourcesFailing},
			parts: []string{
				`source "main": ConnectionFailed: dial: connection refused (as 1 of 3 serving pods see it).`,
				"spec.sources[name=main].prometheus.url", "NetworkPolicies",
			},
			status: []string{"main false ConnectionFailed dial: connection refused (as 1 of 3 serving pods see it)", "spare true  "},
		},
		"pods see different failures": {
			reports: []*v1alpha1.SourceReport{
				sourceReport(failingSource("main", "Timeout", "slow"), healthySource("spare")),
				sourceReport(failingSource("main", "BadStatus", "502 Bad Gateway"), healthySource("spare")),
				sourceReport(failingSource("main", "BadStatus", "503 Service Unavailable"), healthySource("spare")),
			},
			want:   conditionResult{status: metav1.ConditionFalse, reason: v1alpha1.ReasonSourcesFailing},
			parts:  []string{"BadStatus: 502 Bad Gateway", "HTTP API of Prometheus"},
			status: []string{"main false BadStatus 502 Bad Gateway", "spare true  "},
		},
		"a storage that fails": {
			reports: []*v1alpha1.SourceReport{sourceReport(failingSource("main", "BadStatus", "HTTP 500: expanding series: at least 2 live replicas required"), healthySource("spare"))},
			want:    conditionResult{status: metav1.ConditionFalse, reason: v1alpha1.ReasonSourcesFailing},
			parts:   []string{`source "main": BadStatus: HTTP 500: expanding series: at least 2 live replicas required. See the server's log`},
			status:  []string{"main false BadStatus HTTP 500: expanding series: at least 2 live replicas required", "spare true  "},
		},
		"not asked yet": {
			reports: []*v1alpha1.SourceReport{sourceReport(withSource(v1alpha1.SourceHealth{Name: "main"}), healthySource("spare"))},
			want:    conditionResult{status: metav1.ConditionUnknown, reason: v1alpha1.ReasonProgressing},
			parts:   []string{"main"},
			status:  []string{"main false NotYetReported ", "spare true  "},
		},
		"a pod that has just started has not asked": {
			reports: []*v1alpha1.SourceReport{sourceReport(healthySource("main"), healthySource("spare")), sourceReport(withSource(v1alpha1.SourceHealth{Name: "main"}))},
			want:    conditionResult{status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded},
			status:  []string{"main true  ", "spare true  "},
		},
		"foreign text": {
			reports: []*v1alpha1.SourceReport{sourceReport(failingSource("main", "FromTheFuture", "\x1b[2Jgone\n"+strings.Repeat("x", 5000)), healthySource("spare"))},
			want:    conditionResult{status: metav1.ConditionFalse, reason: v1alpha1.ReasonSourcesFailing},
			parts:   []string{"FromTheFuture: ?[2Jgone?xxx", "log"},
			status:  []string{"main false FromTheFuture ?[2Jgone?" + strings.Repeat("x", maxSourceMessage-len("?[2Jgone?…")) + "…", "spare true  "},
		},
	}
	fc := newFakeCluster(t, newBackend(withSources))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := fc.reconciler().newState(newBackend(withSources))
			got := s.specSources(tc.reports)
			if got.status != tc.want.status || got.reason != tc.want.reason {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			for _, part := range tc.parts {
				if !strings.Contains(got.message, part) {
					t.Errorf("message %q, want %q in it", got.message, part)
				}
			}
			var status []string
			for _, known := range s.backend.Status.Sources {
				status = append(status, fmt.Sprintf("%s %t %s %s", known.Name, known.Healthy, known.Reason, known.Message))
			}
			if diff := cmp.Diff(tc.status, status); diff != "" {
				t.Errorf("status.sources (-want +got):\n%s", diff)
			}
		})
	}
}

// Every reason of serving's sources has its own remedy.
func TestSourceRemedies(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(withSources))
	s := fc.reconciler().newState(newBackend(withSources))
	unknown := s.sourceRemedy(&s.spec.Sources[0], "FromTheFuture")
	for _, reason := range []string{
		"Credentials", "ConnectionFailed", "Timeout", "CertificateUntrusted", "Unauthorized", "Rejected", "BadStatus", "TooLarge", "Malformed",
		"InvalidSpec", "Overloaded", "RateLimited",
	} {
		if got := s.sourceRemedy(&s.spec.Sources[0], reason); got == unknown {
			t.Errorf("%s: no remedy", reason)
		} else if strings.Contains(got, ".url") && reason == "RateLimited" {
			t.Errorf("%s: %s", reason, got)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	many := make([]func(*v1alpha1.SourceReport), 60)
	for i := range many {
		many[i] = withRule(fmt.Sprintf("spec.customMetrics.rules[%d]", i), "InvalidMetricsQuery", "m")
	}
	cases := map[string]struct {
		spec          func(*v1alpha1.MetricsBackendSpec)
		reports       []*v1alpha1.SourceReport
		status        metav1.ConditionStatus
		reason        string
		parts         []string
		rules         []string
		all, failings int32
	}{
		"no rules": {
			spec: func(*v1alpha1.MetricsBackendSpec) {}, reports: []*v1alpha1.SourceReport{sourceReport()},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded,
		},
		"all well": {reports: []*v1alpha1.SourceReport{sourceReport()}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, all: 50},
		"one typo": {
			reports: []*v1alpha1.SourceReport{
				sourceReport(withRule("spec.customMetrics.rules[10]", "NoSeries", "no series"), withRule("spec.customMetrics.rules[3]", "InvalidMetricsQuery", "metricsQuery: unexpected }")),
				sourceReport(withRule("spec.customMetrics.rules[3]", "InvalidMetricsQuery", "metricsQuery: unexpected }")),
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonRulesInvalid,
			parts: []string{"1 of 50 rules make no metrics. spec.customMetrics.rules[3]: InvalidMetricsQuery: metricsQuery: unexpected }.", "the other rules work"},
			rules: []string{
				"spec.customMetrics.rules[3] Invalid InvalidMetricsQuery metricsQuery: unexpected }",
				"spec.customMetrics.rules[10] Warning NoSeries no series (as 1 of 2 serving pods see it)",
			},
			all: 50, failings: 1,
		},
		"only the moment's": {
			reports: []*v1alpha1.SourceReport{sourceReport(withRule("spec.externalMetrics.rules[0]", "SeriesUnavailable", "slow"))},
			status:  metav1.ConditionFalse, reason: v1alpha1.ReasonRulesFailing,
			rules: []string{"spec.externalMetrics.rules[0] Failing SeriesUnavailable slow"}, all: 50, failings: 1,
		},
		"a remark": {
			reports: []*v1alpha1.SourceReport{sourceReport(withRule("spec.externalMetrics.rules[0]", "NoSeries", "no series"))},
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, parts: []string{"remarks"},
			rules: []string{"spec.externalMetrics.rules[0] Warning NoSeries no series"}, all: 50,
		},
		"one rule with two, and a state of a newer serving": {
			reports: []*v1alpha1.SourceReport{sourceReport(withRule("spec.externalMetrics.rules[0]", "NoSeries", "a"), withRule("spec.externalMetrics.rules[0]", "Collision", "b"),
				func(r *v1alpha1.SourceReport) { r.Rules[1].State = "FromTheFuture" })},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonRulesFailing,
			rules: []string{"spec.externalMetrics.rules[0] Warning NoSeries a", "spec.externalMetrics.rules[0] Failing Collision b"}, all: 50, failings: 1,
		},
		"more than are named": {
			reports: []*v1alpha1.SourceReport{sourceReport(append(many, func(r *v1alpha1.SourceReport) { r.RuleCount = 60 })...)},
			status:  metav1.ConditionFalse, reason: v1alpha1.ReasonRulesInvalid, parts: []string{"60 of 60 rules"},
			all: 60, failings: 60, rules: []string{"50 of them"},
		},
		"numbers that make no sense": {
			reports: []*v1alpha1.SourceReport{sourceReport(func(r *v1alpha1.SourceReport) { r.RuleCount, r.FailingRules = 1<<40, -3 })},
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, all: 1 << 30,
		},
	}
	fc := newFakeCluster(t, newBackend())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.spec == nil {
				tc.spec = withSources
			}
			s := fc.reconciler().newState(newBackend(tc.spec))
			got := s.rules(tc.reports)
			if got.status != tc.status || got.reason != tc.reason {
				t.Errorf("got %+v, want %s, %s", got, tc.status, tc.reason)
			}
			for _, part := range tc.parts {
				if !strings.Contains(got.message, part) {
					t.Errorf("message %q, want %q in it", got.message, part)
				}
			}
			status := s.backend.Status
			var rules []string
			for _, known := range status.Rules {
				rules = append(rules, fmt.Sprint(known.Path, " ", known.State, " ", known.Reason, " ", known.Message))
			}
			if len(rules) > 5 {
				rules = []string{fmt.Sprintf("%d of them", len(rules))}
			}
			if diff := cmp.Diff(tc.rules, rules); diff != "" {
				t.Errorf("status.rules (-want +got):\n%s", diff)
			}
			if status.RuleCount != tc.all || status.FailingRules != tc.failings {
				t.Errorf("%d of %d rules, want %d of %d", status.FailingRules, status.RuleCount, tc.failings, tc.all)
			}
		})
	}
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
	fc.clock.Step(sourcesGrace)
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
	fc.clock.Step(sourcesGrace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, "", "try 2")
	fc.wantCondition(v1alpha1.ConditionRulesReady, metav1.ConditionFalse, "", "try 2")
	written = fc.backend().ResourceVersion
	for i := range 4 {
		fc.sources = bad(fmt.Sprintf("try %d", 3+i))
		unwritten("other words")
		fc.clock.Step(time.Minute)
	}
	fc.clock.Step(messageGrace)
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionSourcesHealthy, "", "", "try 6")
	fc.sources = well()
	mustReconcile(t, r)
	if c := fc.condition(v1alpha1.ConditionSourcesHealthy); c.Status != metav1.ConditionTrue || !fc.backend().Status.Sources[0].Healthy {
		t.Errorf("not reported that it is over: %+v", c)
	}
	fc.wantCondition(v1alpha1.ConditionRulesReady, metav1.ConditionTrue, "")
}

// Warnings do not displace failures, and the order stays.
func TestWorstRules(t *testing.T) {
	t.Parallel()
	reported := func(index int, state v1alpha1.RuleState) v1alpha1.RuleStatus {
		return v1alpha1.RuleStatus{Path: fmt.Sprintf("spec.customMetrics.rules[%d]", index), State: state}
	}
	all := []v1alpha1.RuleStatus{
		reported(0, v1alpha1.RuleWarning), reported(2, v1alpha1.RuleWarning), reported(3, v1alpha1.RuleFailing), reported(9, v1alpha1.RuleWarning), reported(10, v1alpha1.RuleInvalid),
	}
	if diff := cmp.Diff([]v1alpha1.RuleStatus{all[0], all[2], all[4]}, worstRules(all, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]v1alpha1.RuleStatus{all[4]}, worstRules(all, 1)); diff != "" {
		t.Errorf("of one (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(all, worstRules(all, 5)); diff != "" {
		t.Errorf("of all (-want +got):\n%s", diff)
	}
}
