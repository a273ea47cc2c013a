// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
	"github.com/metricsbackend/metrics-backend-operator/test/sourcereport"
)

// input returns what the reports of a new backend are evaluated against.
func input(change ...func(*v1alpha1.MetricsBackendSpec)) *Input {
	spec := v1alpha1.MetricsBackendSpec{ResourceMetrics: &v1alpha1.ResourceMetricsSpec{}}
	for _, c := range change {
		c(&spec)
	}
	v1alpha1.SetDefaults(&spec)
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	return &Input{
		Backend: "cluster", Generation: 1, Spec: spec, Serving: manifests.Serving{Backend: "cluster", Namespace: "operator-ns"},
		Stored: &v1alpha1.MetricsBackendStatus{}, Now: c.Now(), Streaks: debounce.New[Key](c),
	}
}

func TestSpecSources(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reports []*v1alpha1.SourceReport
		want    Result
		parts   []string
		// status is NAME HEALTHY REASON MESSAGE.
		status []string
	}{
		"both answer": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare"))},
			want:    Result{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded},
			status:  []string{"main true  ", "spare true  "},
		},
		"an optional one fails": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Healthy("main"), sourcereport.Failing("spare", "Timeout", "no answer within 10s"))},
			want:    Result{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded},
			status:  []string{"main true  ", "spare false Timeout no answer within 10s"},
		},
		"one of three pods cannot reach it": {
			reports: []*v1alpha1.SourceReport{
				sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare")),
				sourcereport.New(sourcereport.Failing("main", "ConnectionFailed", "dial: connection refused."), sourcereport.Healthy("spare")),
				sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare")),
			},
			want: Result{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSourcesFailing},
			parts: []string{
				`source "main": ConnectionFailed: dial: connection refused (as 1 of 3 serving pods see it).`,
				"spec.sources[name=main].prometheus.url", "NetworkPolicies",
			},
			status: []string{"main false ConnectionFailed dial: connection refused (as 1 of 3 serving pods see it)", "spare true  "},
		},
		"pods see different failures": {
			reports: []*v1alpha1.SourceReport{
				sourcereport.New(sourcereport.Failing("main", "Timeout", "slow"), sourcereport.Healthy("spare")),
				sourcereport.New(sourcereport.Failing("main", "BadStatus", "502 Bad Gateway"), sourcereport.Healthy("spare")),
				sourcereport.New(sourcereport.Failing("main", "BadStatus", "503 Service Unavailable"), sourcereport.Healthy("spare")),
			},
			want:   Result{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSourcesFailing},
			parts:  []string{"BadStatus: 502 Bad Gateway", "HTTP API of Prometheus"},
			status: []string{"main false BadStatus 502 Bad Gateway", "spare true  "},
		},
		"a storage that fails": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Failing("main", "BadStatus", "HTTP 500: expanding series: at least 2 live replicas required"), sourcereport.Healthy("spare"))},
			want:    Result{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSourcesFailing},
			parts:   []string{`source "main": BadStatus: HTTP 500: expanding series: at least 2 live replicas required. See the server's log`},
			status:  []string{"main false BadStatus HTTP 500: expanding series: at least 2 live replicas required", "spare true  "},
		},
		"not asked yet": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Source(v1alpha1.SourceHealth{Name: "main"}), sourcereport.Healthy("spare"))},
			want:    Result{Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonProgressing},
			parts:   []string{"main"},
			status:  []string{"main false NotYetReported ", "spare true  "},
		},
		"a pod that has just started has not asked": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare")), sourcereport.New(sourcereport.Source(v1alpha1.SourceHealth{Name: "main"}))},
			want:    Result{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSucceeded},
			status:  []string{"main true  ", "spare true  "},
		},
		"foreign text": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Failing("main", "FromTheFuture", "\x1b[2Jgone\n"+strings.Repeat("x", 5000)), sourcereport.Healthy("spare"))},
			want:    Result{Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSourcesFailing},
			parts:   []string{"FromTheFuture: ?[2Jgone?xxx", "log"},
			status:  []string{"main false FromTheFuture ?[2Jgone?" + strings.Repeat("x", maxSourceMessage-len("?[2Jgone?…")) + "…", "spare true  "},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, sources := input(sourcereport.Spec).Sources(tc.reports)
			if got.Status != tc.want.Status || got.Reason != tc.want.Reason {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			for _, part := range tc.parts {
				if !strings.Contains(got.Message, part) {
					t.Errorf("message %q, want %q in it", got.Message, part)
				}
			}
			var status []string
			for _, known := range sources {
				status = append(status, fmt.Sprintf("%s %t %s %s", known.Name, known.Healthy, known.Reason, known.Message))
			}
			if diff := cmp.Diff(tc.status, status); diff != "" {
				t.Errorf("status.sources (-want +got):\n%s", diff)
			}
		})
	}
}

// Every reason of serving's sources has its own remedy, which names fields that the kind of source has.
func TestSourceRemedies(t *testing.T) {
	t.Parallel()
	in := input(sourcereport.Spec)
	sources := map[string]*v1alpha1.SourceSpec{
		"prometheus": &in.Spec.Sources[0], "metricsAPI": {Name: "keda", MetricsAPI: &v1alpha1.MetricsAPISource{}},
	}
	both := []string{"Credentials", "ConnectionFailed", "Timeout", "CertificateUntrusted", "Unauthorized", "BadStatus", "TooLarge", "Malformed", "InvalidSpec", "Overloaded", "RateLimited"}
	for kind, own := range map[string][]string{"prometheus": {"Rejected", "PartialResponse"}, "metricsAPI": {"ServerError", "ServiceMissing", "Loop"}} {
		unknown := in.sourceRemedy(sources[kind], "FromTheFuture")
		for _, reason := range slices.Concat(both, own) {
			got := in.sourceRemedy(sources[kind], reason)
			if got == unknown {
				t.Errorf("%s of %s: no remedy", reason, kind)
			} else if strings.Contains(got, ".url") && reason == "RateLimited" {
				t.Errorf("%s of %s: %s", reason, kind, got)
			}
			for _, field := range []string{".prometheus", ".url", ".timeout", ".authentication", ".headers", ".queryParameters", ".maxResponseSize", "Prometheus", "vector"} {
				if kind == "metricsAPI" && strings.Contains(got, field) {
					t.Errorf("%s of %s has %q in it: %s", reason, kind, field, got)
				}
			}
		}
	}
	for reason, want := range map[string]string{
		"Credentials":          "names, in namespace operator-ns",
		"ConnectionFailed":     "spec.sources[name=keda].metricsAPI.service",
		"CertificateUntrusted": "spec.sources[name=keda].metricsAPI.tls.insecureSkipTLSVerify",
		"Unauthorized":         "denies ServiceAccount metrics-serving-cluster-metricsapi",
	} {
		if got := in.sourceRemedy(sources["metricsAPI"], reason); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", reason, got, want)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	many := make([]func(*v1alpha1.SourceReport), 60)
	for i := range many {
		many[i] = sourcereport.Rule(fmt.Sprintf("spec.customMetrics.rules[%d]", i), "InvalidMetricsQuery", "m")
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
			spec: func(*v1alpha1.MetricsBackendSpec) {}, reports: []*v1alpha1.SourceReport{sourcereport.New()},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded,
		},
		"all well": {reports: []*v1alpha1.SourceReport{sourcereport.New()}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, all: 50},
		"one typo": {
			reports: []*v1alpha1.SourceReport{
				sourcereport.New(sourcereport.Rule("spec.customMetrics.rules[10]", "NoSeries", "no series"), sourcereport.Rule("spec.customMetrics.rules[3]", "InvalidMetricsQuery", "metricsQuery: unexpected }")),
				sourcereport.New(sourcereport.Rule("spec.customMetrics.rules[3]", "InvalidMetricsQuery", "metricsQuery: unexpected }")),
			},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonRulesInvalid,
			parts: []string{"1 of 50 rules do not work. spec.customMetrics.rules[3]: InvalidMetricsQuery: metricsQuery: unexpected }.", "the other rules work"},
			rules: []string{
				"spec.customMetrics.rules[3] Invalid InvalidMetricsQuery metricsQuery: unexpected }",
				"spec.customMetrics.rules[10] Warning NoSeries no series (as 1 of 2 serving pods see it)",
			},
			all: 50, failings: 1,
		},
		"a route without any rule": {
			spec: func(spec *v1alpha1.MetricsBackendSpec) {
				spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "nobody"}}}
			},
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Rule("spec.externalMetrics.routes[0]", "InvalidSource", "no source is called nobody"))},
			status:  metav1.ConditionFalse, reason: v1alpha1.ReasonRulesInvalid, parts: []string{"1 of 50 rules do not work. spec.externalMetrics.routes[0]: InvalidSource: no source"},
			rules: []string{"spec.externalMetrics.routes[0] Invalid InvalidSource no source is called nobody"}, all: 50, failings: 1,
		},
		"a custom route without any rule": {
			spec: func(spec *v1alpha1.MetricsBackendSpec) {
				spec.CustomMetrics = &v1alpha1.CustomMetricsSpec{Routes: []v1alpha1.MetricRoute{{Source: "keda"}}}
			},
			reports: []*v1alpha1.SourceReport{sourcereport.New()}, status: metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, all: 50,
		},
		"only the moment's": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Rule("spec.externalMetrics.rules[0]", "SeriesUnavailable", "slow"))},
			status:  metav1.ConditionFalse, reason: v1alpha1.ReasonRulesFailing,
			rules: []string{"spec.externalMetrics.rules[0] Failing SeriesUnavailable slow"}, all: 50, failings: 1,
		},
		"a remark": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Rule("spec.externalMetrics.rules[0]", "NoSeries", "no series"))},
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, parts: []string{"remarks"},
			rules: []string{"spec.externalMetrics.rules[0] Warning NoSeries no series"}, all: 50,
		},
		"one rule with two, and a state of a newer serving": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(sourcereport.Rule("spec.externalMetrics.rules[0]", "NoSeries", "a"), sourcereport.Rule("spec.externalMetrics.rules[0]", "Collision", "b"),
				func(r *v1alpha1.SourceReport) { r.Rules[1].State = "FromTheFuture" })},
			status: metav1.ConditionFalse, reason: v1alpha1.ReasonRulesFailing,
			rules: []string{"spec.externalMetrics.rules[0] Warning NoSeries a", "spec.externalMetrics.rules[0] Failing Collision b"}, all: 50, failings: 1,
		},
		"more than are named": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(append(many, func(r *v1alpha1.SourceReport) { r.RuleCount = 60 })...)},
			status:  metav1.ConditionFalse, reason: v1alpha1.ReasonRulesInvalid, parts: []string{"60 of 60 rules"},
			all: 60, failings: 60, rules: []string{"50 of them"},
		},
		"numbers that make no sense": {
			reports: []*v1alpha1.SourceReport{sourcereport.New(func(r *v1alpha1.SourceReport) { r.RuleCount, r.FailingRules = 1<<40, -3 })},
			status:  metav1.ConditionTrue, reason: v1alpha1.ReasonSucceeded, all: 1 << 30,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.spec == nil {
				tc.spec = sourcereport.Spec
			}
			got, status := input(tc.spec).Rules(tc.reports)
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("got %+v, want %s, %s", got, tc.status, tc.reason)
			}
			for _, part := range tc.parts {
				if !strings.Contains(got.Message, part) {
					t.Errorf("message %q, want %q in it", got.Message, part)
				}
			}
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
			if status.Count != tc.all || status.Failing != tc.failings {
				t.Errorf("%d of %d rules, want %d of %d", status.Failing, status.Count, tc.failings, tc.all)
			}
		})
	}
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
