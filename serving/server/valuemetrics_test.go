// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// noResources is a cluster that does not answer.
type noResources struct{ asked atomic.Int64 }

func (n *noResources) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	n.asked.Add(1)
	return nil, nil, errors.New("away")
}

func newTestValues(t *testing.T) (*valueMetrics, *noResources) {
	t.Helper()
	resources := &noResources{}
	v := newValueMetrics(resources, newSecrets(fake.NewClientset(), "backend"),
		samplestore.NewStore(clock.RealClock{}, time.Minute), stillKubelets{}, clock.RealClock{}, query.Limits{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { v.run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return v, resources
}

func (v *valueMetrics) externals() []string {
	names, _ := v.catalogue.ExternalMetrics(10)
	return names
}

// applied is a spec as settings hand it on.
func (v *valueMetrics) applied(t *testing.T, spec v1alpha1.MetricsBackendSpec) {
	t.Helper()
	s, err := settingsFrom(&spec)
	if err != nil {
		t.Fatal(err)
	}
	v.apply(t.Context(), s.spec, s.invalid)
}

// TestRulesFollowTheSpec from a source's series to the metric's values, and when a rule
// or the source goes.
func TestRulesFollowTheSpec(t *testing.T) {
	v, resources := newTestValues(t)
	if resources.asked.Load() != 0 {
		t.Error("the cluster was asked for its resources without a source")
	}
	server := answeringServer(t)
	namespaced := false
	rule := v1alpha1.MetricRule{SeriesQuery: "queue_length", Resources: v1alpha1.RuleResources{Namespaced: &namespaced}}
	spec := v1alpha1.MetricsBackendSpec{
		Sources:         []v1alpha1.SourceSpec{prometheusAt("main", server.URL)},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{rule, {SeriesQuery: "{"}}},
	}
	v.applied(t, spec)
	eventuallyTrue(t, "the rule makes its metric", func() bool { return cmp.Equal(v.externals(), []string{"queue_length"}) })
	mq, err := v.catalogue.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "queue_length"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := v.evaluator.Query(t.Context(), mq.Query)
	if err != nil || len(answer.Samples) != 1 {
		t.Fatalf("answer %+v, %v", answer, err)
	}
	var report v1alpha1.SourceReport
	v.report(&report)
	if len(report.Sources) != 1 || !report.Sources[0].Healthy || report.RuleCount != 2 || report.FailingRules != 1 || report.ExternalMetrics != 1 {
		t.Errorf("report %+v", report)
	}

	// The same series again, under another name: they are known already.
	spec.ExternalMetrics.Rules[0].Name.As = "renamed"
	v.applied(t, spec)
	if got := v.externals(); !cmp.Equal(got, []string{"renamed"}) {
		t.Errorf("after the edit there are %q", got)
	}
	v.applied(t, v1alpha1.MetricsBackendSpec{})
	if got := v.externals(); len(got) != 0 {
		t.Errorf("without rules there are %q", got)
	}
	if _, err := v.evaluator.Query(t.Context(), mq.Query); err == nil {
		t.Error("a source that is gone answers")
	}
}

// TestGovern: policies are known once there are any, even none, and bad ones are told of.
func TestGovern(t *testing.T) {
	v, _ := newTestValues(t)
	bad := &v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	bad.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{{Metric: "("}}
	worse := bad.DeepCopy()
	worse.Name = "worse"
	v.govern(t.Context(), []*v1alpha1.ExternalMetricsPolicy{bad, worse})
	if v.policyError == "" {
		t.Error("nothing is said of policies that cannot be used")
	}
	if n := countErrors(errors.Join(errors.New("a"), errors.New("b"))); n != 2 {
		t.Errorf("%d errors, want 2", n)
	}
	v.govern(t.Context(), nil)
	if v.policyError != "" {
		t.Errorf("still told: %s", v.policyError)
	}
}

func TestHealthOf(t *testing.T) {
	at := time.Unix(1700000000, 0)
	declared := rules.Declared{Kind: "ExternalMetric", Namespace: "shop", Name: "m", UID: "u", Generation: 3, MetricQuery: query.MetricQuery{}}
	base := v1alpha1.DeclaredHealth{Kind: "ExternalMetric", Namespace: "shop", Name: "m", UID: "u", Generation: 3}
	sample := func(value float64, of map[string]string) query.Sample {
		return query.Sample{Value: value, Labels: of, Time: at}
	}
	evaluationErr := &query.EvaluationError{Failure: &query.Failure{Source: "main", Reason: query.ReasonTimeout, Message: "no answer in 10s"}, FailedIntervals: 3}
	static := 7.0
	tests := map[string]struct {
		declared func(*rules.Declared)
		samples  []query.Sample
		err      error
		want     func(*v1alpha1.DeclaredHealth)
	}{
		"one value": {
			samples: []query.Sample{sample(2.5, nil)},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Ready, h.Value, h.Values, h.Time = true, "2500m", 1, metav1.NewTime(at)
			},
		},
		"several values": {
			samples: []query.Sample{sample(1, map[string]string{"a": "b"}), sample(2, nil)},
			want:    func(h *v1alpha1.DeclaredHealth) { h.Ready, h.Values, h.Time = true, 2, metav1.NewTime(at) },
		},
		"no value": {
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Reason, h.Message = reasonNoValues, "the query answers no series: check that it selects some in this namespace"
			},
		},
		"no number": {
			samples: []query.Sample{sample(math.NaN(), nil)},
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Reason, h.Message = "NaN", "the value is NaN (not a number, such as 0/0)"
			},
		},
		"the source fails": {
			err:  evaluationErr,
			want: func(h *v1alpha1.DeclaredHealth) { h.Reason, h.Message = "Timeout", "no answer in 10s" },
		},
		"a fallback": {
			declared: func(d *rules.Declared) { d.MetricQuery.Fallback = &query.Fallback{AfterFailures: 3, Static: &static} },
			err:      evaluationErr,
			want: func(h *v1alpha1.DeclaredHealth) {
				h.Fallback, h.Value, h.Values, h.Reason, h.Message = true, "7", 1, "Timeout", "no answer in 10s"
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := declared
			if tc.declared != nil {
				tc.declared(&d)
			}
			var answer *query.Result
			if tc.err == nil {
				answer = &query.Result{Time: at, Samples: tc.samples}
			}
			values, err := d.MetricQuery.Values(answer, tc.err)
			got, want := healthOf(&d, values, err), base
			tc.want(&want)
			if tc.err != nil {
				got.Time = metav1.Time{} // a stand-in's time is that of the failure
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	d := declared
	d.Reason, d.Message = "InvalidQuery", "it is empty"
	want := base
	want.Reason, want.Message = d.Reason, d.Message
	if diff := cmp.Diff(want, healthOf(&d, nil, nil)); diff != "" {
		t.Errorf("not in force (-want +got):\n%s", diff)
	}
}

// countedRefreshes counts how often a group heard of changes.
type countedRefreshes struct {
	watchedGroup
	heard atomic.Int64
}

func (c *countedRefreshes) Refresh() { c.heard.Add(1) }

// TestRefreshesAreCoalesced: news of many rules at once is one refresh, and none is lost.
func TestRefreshesAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newTestValues(t)
		group := &countedRefreshes{}
		v.inform([]watchedGroup{group})
		for range 1000 {
			v.refresh()
		}
		synctest.Wait()
		if n := group.heard.Load(); n != 1 {
			t.Errorf("of the first changes the group heard %d times", n)
		}
		v.refresh()
		v.refresh()
		time.Sleep(refreshInterval)
		synctest.Wait()
		if n := group.heard.Load(); n != 2 {
			t.Errorf("of later changes the group heard %d times in all", n)
		}
		time.Sleep(time.Minute)
		if n := group.heard.Load(); n != 2 {
			t.Errorf("without changes the group heard %d times in all", n)
		}
	})
}

// TestReportTellsOfQueries: what comes of a rule's query when it is asked is a remark on the
// rule, and nothing else suffers.
func TestReportTellsOfQueries(t *testing.T) {
	v, _ := newTestValues(t)
	answer := answeringServer(t).Config.Handler
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
	v.applied(t, v1alpha1.MetricsBackendSpec{
		Sources: []v1alpha1.SourceSpec{prometheusAt("main", server.URL)},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Rules: []v1alpha1.MetricRule{
			{SeriesQuery: "queue_length", Resources: v1alpha1.RuleResources{Namespaced: &namespaced}},
		}},
	})
	eventuallyTrue(t, "the rule makes its metric", func() bool { return len(v.externals()) == 1 })
	eventuallyTrue(t, "the source is healthy", func() bool { return v.sources.health()[0].Healthy })
	mq, err := v.catalogue.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "queue_length"})
	if err != nil {
		t.Fatal(err)
	}
	answered, err := v.evaluator.Query(t.Context(), mq.Query)
	if _, err := mq.Values(answered, err); err == nil {
		t.Fatal("it has values")
	}
	var report v1alpha1.SourceReport
	v.report(&report)
	want := []v1alpha1.RuleHealth{{Path: "spec.externalMetrics.rules[0]", State: v1alpha1.RuleWarning, Reason: "Rejected",
		Message: `the source "main" rejects a query of the rule (correct metricsQuery): many-to-many matching not allowed`}}
	if diff := cmp.Diff(want, report.Rules); diff != "" || report.FailingRules != 0 || !report.Sources[0].Healthy || report.ExternalMetrics != 1 {
		t.Errorf("(-want +got):\n%s\n%+v", diff, report)
	}
}

// TestAnsweredSince: a query that failed before the source was well failed with the source.
func TestAnsweredSince(t *testing.T) {
	began := time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)
	since := answeredSince([]v1alpha1.SourceHealth{
		{Name: "good", Healthy: true, Since: metav1.NewTime(began)}, {Name: "bad", Since: metav1.NewTime(began)},
	})
	for name, test := range map[string]struct {
		source string
		at     time.Time
		want   bool
	}{
		"well":              {"good", began.Add(time.Second), true},
		"just now":          {"good", began, true},
		"not yet":           {"good", began.Add(-time.Second), false},
		"not any more":      {"bad", began.Add(time.Second), false},
		"there is none now": {"gone", began.Add(time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := since(test.source, test.at); got != test.want {
				t.Errorf("it is %t", got)
			}
		})
	}
}

// TestReportTellsTheWorst: remarks do not take the place of what fails.
func TestReportTellsTheWorst(t *testing.T) {
	v, _ := newTestValues(t)
	var spec v1alpha1.MetricsBackendSpec
	spec.Sources = []v1alpha1.SourceSpec{prometheusAt("main", answeringServer(t).URL)}
	spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
	for i := range maxRuleHealth + 10 {
		spec.ExternalMetrics.Rules = append(spec.ExternalMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: fmt.Sprintf(`nothing%d`, i)})
	}
	spec.ExternalMetrics.Rules = append(spec.ExternalMetrics.Rules, v1alpha1.MetricRule{SeriesQuery: "((("})
	v.applied(t, spec)
	for _, s := range v.catalogue.Selections() {
		v.catalogue.SetSeries(s, nil)
	}
	var report v1alpha1.SourceReport
	v.report(&report)
	last := fmt.Sprintf("spec.externalMetrics.rules[%d]", len(spec.ExternalMetrics.Rules)-1)
	if len(report.Rules) != maxRuleHealth || report.Rules[0].Path != last || report.Rules[0].State != v1alpha1.RuleInvalid {
		t.Errorf("%d rules are told of, %s (%s) first", len(report.Rules), report.Rules[0].Path, report.Rules[0].State)
	}
}
