// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/reports"
	"github.com/metricsbackend/metrics-backend-operator/test/sourcereport"
)

// An invalid rule is reported in Ready, and breaks nothing else.
func TestInvalidRuleStalls(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.change(sourcereport.Spec)
	fc.sources = sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare"))
	fc.reconcileUntil(r, fc.isReady)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.CustomMetrics.Rules = append(spec.CustomMetrics.Rules, v1alpha1.MetricRule{})
	})
	fc.sources = sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare"), sourcereport.Rule("spec.customMetrics.rules[0]", "InvalidMetricsQuery", "metricsQuery: unexpected }"))
	fc.oldSettings = true
	mustReconcile(t, r)
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "", "does not use the settings")
	fc.oldSettings = false
	mustReconcile(t, r)
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionStalled} {
		fc.wantCondition(kind, "", v1alpha1.ReasonRulesInvalid, "spec.customMetrics.rules[0]")
	}
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	fc.sources = sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare"), sourcereport.Rule("spec.customMetrics.rules[0]", "NoSeries", "no series"))
	mustReconcile(t, r)
	if !fc.isReady() {
		t.Errorf("a rule without series:\n%s", fc.show())
	}
	fc.sources = sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare"), sourcereport.Rule("spec.customMetrics.rules[0]", "SeriesUnavailable", "slow"))
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
	fc.change(sourcereport.Spec)
	well := func() *v1alpha1.SourceReport {
		return sourcereport.New(sourcereport.Healthy("main"), sourcereport.Healthy("spare"))
	}
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
		return sourcereport.New(sourcereport.Failing("main", "Timeout", words), sourcereport.Healthy("spare"), sourcereport.Rule("spec.customMetrics.rules[0]", "SourceFailing", words))
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

// That a kubelet was verified is in the status from the first report on and stays there. Neither
// it nor the number of pinned certificates causes a write with each report.
func TestKubeletsVerified(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	type state struct {
		Written, Verified bool
		Message           string
	}
	for _, step := range []struct {
		what   string
		report v1alpha1.KubeletReport
		want   state
	}{
		{"pinned", v1alpha1.KubeletReport{Nodes: 20, Healthy: 20, Pinned: 20}, state{false, false, "all kubelets that were asked answer"}},
		{"one more", v1alpha1.KubeletReport{Nodes: 21, Healthy: 21, Pinned: 21}, state{false, false, "all kubelets that were asked answer"}},
		{"one is signed", v1alpha1.KubeletReport{Nodes: 20, Healthy: 20, Verified: 1}, state{true, true, "all kubelets that were asked answer"}},
		{"all are signed", v1alpha1.KubeletReport{Nodes: 20, Healthy: 20, Verified: 20}, state{false, true, "all kubelets that were asked answer"}},
		{"another pod has verified none", v1alpha1.KubeletReport{Nodes: 20, Healthy: 20}, state{false, true, "all kubelets that were asked answer"}},
	} {
		before := fc.backend().ResourceVersion
		fc.report = step.report
		mustReconcile(t, r)
		got := state{fc.backend().ResourceVersion != before, fc.backend().Status.KubeletsVerified, fc.condition(v1alpha1.ConditionSourcesHealthy).Message}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
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
