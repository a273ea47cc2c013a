// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
)

// noResources is a kube-apiserver that does not answer.
type noResources struct {
	discovery.DiscoveryInterfaceWithContext
	asked atomic.Int64
}

func (n *noResources) WithLegacyWithContext(context.Context) discovery.DiscoveryInterfaceWithContext {
	return n
}

func (n *noResources) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	n.asked.Add(1)
	return nil, nil, errors.New("away")
}

func newTestPipeline(t *testing.T) (*metricPipeline, *noResources) {
	t.Helper()
	resources := &noResources{}
	p := newMetricPipeline(resources, config.NewReferences(fake.NewClientset(), "backend", nil),
		samplestore.NewStore(clock.RealClock{}, time.Minute), fakeKubelets{}, nil, clock.RealClock{}, 200)
	runUntilEnd(t, p.run)
	return p, resources
}

func (p *metricPipeline) externals() []string {
	names, _ := p.catalog.ExternalMetrics(10)
	return names
}

// applied applies a spec with its defaults.
func (p *metricPipeline) applied(t *testing.T, spec v1alpha1.MetricsBackendSpec) {
	t.Helper()
	s, err := config.SettingsFrom(&spec)
	if err != nil {
		t.Fatal(err)
	}
	p.apply(t.Context(), s.Spec)
}

// TestExtraCA: sources follow the ConfigMap of serving.caConfigMapKeyRef, which is watched.
func TestExtraCA(t *testing.T) {
	p := newMetricPipeline(&noResources{}, config.NewReferences(fake.NewClientset(), "backend", nil),
		samplestore.NewStore(clock.RealClock{}, time.Minute), fakeKubelets{}, nil, clock.RealClock{}, 200)
	for name, want := range map[string]string{
		"first":  `the ConfigMap "first" for serving.caConfigMapKeyRef is not known yet: no answer from kube-apiserver yet`,
		"second": `the ConfigMap "second" for serving.caConfigMapKeyRef is not known yet: no answer from kube-apiserver yet`,
	} {
		p.applied(t, v1alpha1.MetricsBackendSpec{
			Serving: v1alpha1.ServingSpec{CAConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: name, Key: "ca.crt"}},
			Sources: []v1alpha1.SourceSpec{prometheusAt("main", "https://127.0.0.1:1")},
		})
		source, _ := p.sources.find("main")
		_, err := source.Evaluate(t.Context(), query.Query{Expression: "x"}, time.Now())
		if f, ok := errors.AsType[*query.Failure](err); !ok || f.Message != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestRulesFollowTheSpec from the series of a source to the values of a metric, and when the
// rule or the source is removed.
func TestRulesFollowTheSpec(t *testing.T) {
	p, resources := newTestPipeline(t)
	if resources.asked.Load() != 0 {
		t.Error("the cluster was asked for its resources without a source")
	}
	server := prometheusServer(t)
	namespaced := false
	rule := v1alpha1.MetricRule{SeriesQuery: "queue_length", Resources: v1alpha1.RuleResources{Namespaced: &namespaced}}
	spec := v1alpha1.MetricsBackendSpec{
		Sources:         []v1alpha1.SourceSpec{prometheusAt("main", server.URL)},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{rule, {SeriesQuery: "{"}}},
	}
	p.applied(t, spec)
	eventuallyTrue(t, "the rule makes its metric", func() bool { return cmp.Equal(p.externals(), []string{"queue_length"}) })
	mq, err := p.catalog.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "queue_length"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.evaluator.Query(t.Context(), mq.Query)
	if err != nil || len(answer.Samples) != 1 {
		t.Fatalf("answer %+v, %v", answer, err)
	}
	report := p.reporter(func() int64 { return 1 }).SourceReport()
	if len(report.Sources) != 1 || !report.Sources[0].Healthy || report.RuleCount != 2 || report.FailingRules != 1 || report.ExternalMetrics != 1 {
		t.Errorf("report %+v", report)
	}

	// The same series again, under another name: they are known already.
	spec.ExternalMetrics.Rules[0].Name.As = "renamed"
	p.applied(t, spec)
	if got := p.externals(); !cmp.Equal(got, []string{"renamed"}) {
		t.Errorf("after the edit there are %q", got)
	}
	p.applied(t, v1alpha1.MetricsBackendSpec{})
	if got := p.externals(); len(got) != 0 {
		t.Errorf("without rules there are %q", got)
	}
	if _, err := p.evaluator.Query(t.Context(), mq.Query); err == nil {
		t.Error("a source that is gone answers")
	}
}

// TestApplyPolicies: invalid policies are logged and counted.
func TestApplyPolicies(t *testing.T) {
	p, _ := newTestPipeline(t)
	bad := &v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	bad.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{{Metric: "("}}
	worse := bad.DeepCopy()
	worse.Name = "worse"
	p.applyPolicies(t.Context(), []*v1alpha1.ExternalMetricsPolicy{bad, worse})
	if p.policyError == "" {
		t.Error("nothing is said of policies that cannot be used")
	}
	if n := countErrors(errors.Join(errors.New("a"), errors.New("b"))); n != 2 {
		t.Errorf("%d errors, want 2", n)
	}
	p.applyPolicies(t.Context(), nil)
	if p.policyError != "" {
		t.Errorf("still told: %s", p.policyError)
	}
}

// countingGroup counts its refreshes.
type countingGroup struct{ refreshes atomic.Int64 }

func (c *countingGroup) Refresh() { c.refreshes.Add(1) }

// TestRefreshesAreCoalesced: many changes at once are one refresh, and none is lost.
func TestRefreshesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTestPipeline(t)
		group := &countingGroup{}
		p.addGroup(group)
		for range 1000 {
			p.changed.Set()
		}
		synctest.Wait()
		if n := group.refreshes.Load(); n != 1 {
			t.Errorf("%d refreshes after the first changes", n)
		}
		p.changed.Set()
		p.changed.Set()
		time.Sleep(refreshInterval)
		synctest.Wait()
		if n := group.refreshes.Load(); n != 2 {
			t.Errorf("%d refreshes in all after later changes", n)
		}
		time.Sleep(time.Minute)
		if n := group.refreshes.Load(); n != 2 {
			t.Errorf("%d refreshes in all without further changes", n)
		}
	})
}

// TestReportHasQueryProblems: a rejected query of a rule is a warning of the rule.
func TestReportHasQueryProblems(t *testing.T) {
	p, _ := newTestPipeline(t)
	answer := prometheusServer(t).Config.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.FormValue("query"), "queue_length") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = w.Write([]byte(`{"status":"error","errorType":"execution","error":"many-to-many matching not allowed"}`))
			return
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	namespaced := false
	p.applied(t, v1alpha1.MetricsBackendSpec{
		Sources: []v1alpha1.SourceSpec{prometheusAt("main", server.URL)},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{
			{SeriesQuery: "queue_length", Resources: v1alpha1.RuleResources{Namespaced: &namespaced}},
		}},
	})
	eventuallyTrue(t, "the rule makes its metric", func() bool { return len(p.externals()) == 1 })
	eventuallyTrue(t, "the source is healthy", func() bool { return p.sources.health()[0].Healthy })
	mq, err := p.catalog.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "queue_length"})
	if err != nil {
		t.Fatal(err)
	}
	answered, err := p.evaluator.Query(t.Context(), mq.Query)
	if _, err := mq.Values(answered, err); err == nil {
		t.Fatal("it has values")
	}
	report := p.reporter(func() int64 { return 1 }).SourceReport()
	want := []v1alpha1.RuleHealth{{Path: "spec.externalMetrics.rules[0]", State: v1alpha1.RuleWarning, Reason: "Rejected",
		Message: `the source "main" rejects a query of the rule (correct metricsQuery): many-to-many matching not allowed`}}
	if diff := cmp.Diff(want, report.Rules); diff != "" || report.FailingRules != 0 || !report.Sources[0].Healthy || report.ExternalMetrics != 1 {
		t.Errorf("(-want +got):\n%s\n%+v", diff, report)
	}
}

// TestReportHasFailuresFirst: warnings do not displace failures.
func TestReportHasFailuresFirst(t *testing.T) {
	p, _ := newTestPipeline(t)
	var spec v1alpha1.MetricsBackendSpec
	spec.Sources = []v1alpha1.SourceSpec{prometheusAt("main", prometheusServer(t).URL)}
	spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
	for i := range 60 {
		spec.ExternalMetrics.Rules = append(spec.ExternalMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: fmt.Sprintf(`nothing%d`, i)})
	}
	spec.ExternalMetrics.Rules = append(spec.ExternalMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: "((("})
	p.applied(t, spec)
	for _, s := range p.catalog.Selections() {
		p.catalog.SetSeries(s, nil)
	}
	report := p.reporter(func() int64 { return 1 }).SourceReport()
	last := fmt.Sprintf("spec.externalMetrics.rules[%d]", len(spec.ExternalMetrics.Rules)-1)
	if len(report.Rules) != 50 || report.Rules[0].Path != last || report.Rules[0].State != v1alpha1.RuleInvalid {
		t.Errorf("%d rules are told of, %s (%s) first", len(report.Rules), report.Rules[0].Path, report.Rules[0].State)
	}
}
