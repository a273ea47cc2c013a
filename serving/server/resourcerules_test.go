// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/resourcerules"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// fakePoller records what was applied.
type fakePoller struct {
	applied []*rules.ResourceQueries
	report  resourcerules.Report
}

func (f *fakePoller) Apply(q *rules.ResourceQueries) { f.applied = append(f.applied, q) }
func (f *fakePoller) Report() resourcerules.Report   { return f.report }

type fakeKubelets struct{}

func (fakeKubelets) Report() v1alpha1.KubeletReport {
	return v1alpha1.KubeletReport{NewestSample: metav1.NewTime(time.Unix(1, 0))}
}
func (fakeKubelets) HasRates() (bool, string) { return true, "kubelets" }

func ruledSpec() *v1alpha1.MetricsBackendSpec {
	rule := func(container, node string) v1alpha1.ResourceRule {
		return v1alpha1.ResourceRule{
			ContainerQuery: container, NodeQuery: node, ContainerLabel: "container",
			Resources: v1alpha1.RuleResources{Template: "<<.Resource>>"},
		}
	}
	return &v1alpha1.MetricsBackendSpec{
		Sources: []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus"}}},
		ResourceMetrics: &v1alpha1.ResourceMetricsSpec{Rules: &v1alpha1.ResourceRules{
			CPU:    rule(`sum(rate(c{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)`, `sum(rate(n{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)`),
			Memory: rule(`sum(m{<<.LabelMatchers>>}) by (<<.GroupBy>>)`, `sum(o{<<.LabelMatchers>>}) by (<<.GroupBy>>)`),
		}},
	}
}

func TestResourceRules(t *testing.T) {
	poller := &fakePoller{}
	f := &resourceRules{kubelets: fakeKubelets{}, poller: poller}
	ctx := t.Context()

	f.apply(ctx, &v1alpha1.MetricsBackendSpec{})
	if has, why := f.hasRates(); !has || why != "kubelets" || len(poller.applied) != 0 {
		t.Errorf("without rules: %v, %s, applied %d times", has, why, len(poller.applied))
	}

	first := ruledSpec()
	first.ResourceMetrics.Rules.CPU.NodeQuery = "<<"
	f.apply(ctx, first)
	if has, why := f.hasRates(); !has || why != "kubelets" || len(poller.applied) != 0 {
		t.Errorf("with bad rules after none: %v, %s, applied %d times", has, why, len(poller.applied))
	}
	if problems, count, failing := f.health(); len(problems) != 1 || count != 4 || failing != 1 {
		t.Errorf("with bad rules after none: %d of %d fail, %+v", failing, count, problems)
	}

	f.apply(ctx, ruledSpec())
	f.apply(ctx, ruledSpec())
	if len(poller.applied) != 1 || poller.applied[0] == nil || poller.applied[0].Source != "main" {
		t.Fatalf("applied %+v", poller.applied)
	}
	if has, _ := f.hasRates(); has {
		t.Error("rates before the rules have results")
	}
	newest := metav1.NewTime(time.Unix(1000, 0))
	problem := v1alpha1.RuleHealth{Path: "spec.resourceMetrics.rules.cpu.nodeQuery", State: v1alpha1.RuleFailing, Reason: "Timeout", Message: "slow"}
	poller.report = resourcerules.Report{Done: true, Nodes: 1, Pods: 1, Newest: newest, Problems: []v1alpha1.RuleHealth{problem}}
	if has, why := f.hasRates(); !has {
		t.Errorf("no rates: %s", why)
	}
	if got := f.report().NewestSample; !got.Equal(&newest) {
		t.Errorf("the newest sample is of %s", got)
	}
	problems, count, failing := f.health()
	if diff := cmp.Diff([]v1alpha1.RuleHealth{problem}, problems); diff != "" || count != 4 || failing != 1 {
		t.Errorf("%d rules, problems (-want +got):\n%s", count, diff)
	}

	// Invalid rules change only the reported problems.
	bad := ruledSpec()
	bad.ResourceMetrics.Rules.CPU.NodeQuery = "<<"
	f.apply(ctx, bad)
	if problems, _, _ := f.health(); len(problems) != 1 || problems[0].Reason != rules.ReasonInvalidMetricsQuery || len(poller.applied) != 1 {
		t.Errorf("bad rules: %+v, applied %d times", problems, len(poller.applied))
	}

	// Rules for pods only are applied; what they lack is reported beside what fails.
	alone := ruledSpec()
	alone.ResourceMetrics.Rules.Memory.NodeQuery = ""
	f.apply(ctx, alone)
	if len(poller.applied) != 2 || poller.applied[1] == nil || poller.applied[1].HasNodes() {
		t.Fatalf("rules for pods alone: applied %+v", poller.applied)
	}
	poller.report = resourcerules.Report{Done: true, Pods: 1, PodsOnly: true, Newest: newest, Problems: []v1alpha1.RuleHealth{problem}}
	if has, why := f.hasRates(); !has {
		t.Errorf("rules for pods alone: %s", why)
	}
	if problems, _, failing := f.health(); failing != 2 || len(problems) != 2 || problems[0].Path != "spec.resourceMetrics.rules.memory.nodeQuery" {
		t.Errorf("rules for pods alone: %+v", problems)
	}

	f.apply(ctx, &v1alpha1.MetricsBackendSpec{})
	if n := len(poller.applied); n != 3 || poller.applied[2] != nil {
		t.Errorf("without rules again: applied %+v", poller.applied)
	}
	if problems, count, _ := f.health(); problems != nil || count != 0 {
		t.Errorf("without rules again: %d rules, problems %+v", count, problems)
	}
}

// TestKubeletSettings: invalid rules change nothing: kubelets are scraped, or the previous
// rules stay active.
func TestKubeletSettings(t *testing.T) {
	bad := ruledSpec()
	bad.ResourceMetrics.Rules.CPU.NodeQuery = "<<"
	for name, test := range map[string]struct {
		spec   *v1alpha1.MetricsBackendSpec
		active bool
		// kubelets is true if all are scraped, and false if none is.
		kubelets bool
	}{
		"bad ones after kubelets":  {bad, false, true},
		"bad ones after good ones": {bad, true, false},
		"good ones":                {ruledSpec(), false, false},
		"none any more":            {&v1alpha1.MetricsBackendSpec{}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			settings, err := config.SettingsFrom(test.spec)
			if err != nil {
				t.Fatal(err)
			}
			got := (&resourceRules{active: test.active}).kubeletSettings(settings)
			if everything := got.NodeSelector.Empty(); everything != test.kubelets {
				t.Errorf("all kubelets are scraped: %t, want %t", everything, test.kubelets)
			}
		})
	}
}
