// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

var now = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

func answers(string, time.Time) bool { return true }

// podSeries are of the pod a, once for each value.
func podSeries(values ...float64) *query.Result {
	answer := &query.Result{Time: now}
	for _, v := range values {
		answer.Samples = append(answer.Samples, query.Sample{Labels: map[string]string{"pod": "web-0"}, Value: v, Time: now})
	}
	return answer
}

func evaluationErr(reason query.Reason, message string) error {
	return &query.EvaluationError{Failure: &query.Failure{Source: "prometheus", Reason: reason, Message: message}, FailedIntervals: 1, Time: now}
}

// What comes of a rule's queries is a warning on the rule; its metrics and the other rules
// are as they were.
func TestQueryProblemsAreWarnings(t *testing.T) {
	queue := &query.Result{Time: now, Samples: []query.Sample{{Labels: map[string]string{"queue": "a\u202e"}, Value: math.Inf(1), Time: now}}}
	sum := func(r *v1alpha1.MetricRule) { r.DuplicatesPolicy = v1alpha1.DuplicatesSum }
	omit := func(r *v1alpha1.MetricRule) { r.InvalidValuesPolicy = v1alpha1.InvalidValuesOmit }
	const custom, external = "spec.customMetrics.rules[1]", "spec.externalMetrics.rules[0]"
	tests := map[string]struct {
		external bool
		// rule is changed in both lists.
		rule   func(*v1alpha1.MetricRule)
		answer *query.Result
		err    error
		fails  bool
		want   *v1alpha1.RuleHealth
	}{
		"good":   {answer: podSeries(1)},
		"absent": {answer: podSeries()},
		"several series": {answer: podSeries(1, 2), want: &v1alpha1.RuleHealth{Path: custom, Reason: "Duplicate",
			Message: `objects have no value, such as "web-0" in namespace shop: the answer has several series for one: aggregate in metricsQuery, or set duplicatesPolicy`}},
		"NaN": {answer: podSeries(math.NaN()), want: &v1alpha1.RuleHealth{Path: custom, Reason: "NaN",
			Message: `objects have no value, such as "web-0" in namespace shop: the query gives NaN (not a number, such as 0/0): correct metricsQuery, or set nanAsZero if autoscalers may go by 0`}},
		"NaN of a source that fails now": {answer: podSeries(math.NaN()), fails: true, want: &v1alpha1.RuleHealth{Path: custom, Reason: "NaN",
			Message: `objects have no value, such as "web-0" in namespace shop: the query gives NaN (not a number, such as 0/0): correct metricsQuery, or set nanAsZero if autoscalers may go by 0`}},
		"too large a value": {answer: podSeries(1e300), want: &v1alpha1.RuleHealth{Path: custom, Reason: "TooLarge",
			Message: `objects have no value, such as "web-0" in namespace shop: the query gives more than autoscalers can read: choose a larger unit in metricsQuery`}},
		"grouped by another label": {answer: queue, want: &v1alpha1.RuleHealth{Path: custom, Reason: "NoObject",
			Message: `series have no value, such as {queue="a\u202e"} in namespace shop: the answer lacks the label that names the object: group by it in metricsQuery (<<.GroupBy>>)`}},
		"infinite": {external: true, answer: queue, want: &v1alpha1.RuleHealth{Path: external, Reason: "Infinite",
			Message: `series have no value in namespace shop, and kubectl metrics-backend explain shows which: the query gives an infinity (such as 1/0): correct metricsQuery; or set invalidValuesPolicy to Omit, which serves the other series`}},
		"infinite, and omitted": {external: true, rule: omit, answer: queue, want: &v1alpha1.RuleHealth{Path: external, Reason: "Infinite",
			Message: `series have no value in namespace shop, and kubectl metrics-backend explain shows which: the query gives an infinity (such as 1/0): correct metricsQuery`}},
		"external, several series": {external: true, answer: &query.Result{Time: now, Samples: slices.Concat(queue.Samples, queue.Samples)}, want: &v1alpha1.RuleHealth{Path: external, Reason: "Duplicate",
			Message: `series have no value in namespace shop, and kubectl metrics-backend explain shows which: the answer has several series for one: aggregate in metricsQuery, or set duplicatesPolicy`}},
		"infinite among what is summed": {rule: sum, answer: podSeries(1, math.Inf(1)), want: &v1alpha1.RuleHealth{Path: custom, Reason: "Infinite",
			Message: `objects have no value, such as "web-0" in namespace shop: the query gives an infinity (such as 1/0): correct metricsQuery; or set invalidValuesPolicy to Omit, which serves the other series`}},
		"infinite among what is summed, and omitted": {rule: func(r *v1alpha1.MetricRule) { sum(r); omit(r) }, answer: podSeries(1, math.Inf(1)), want: &v1alpha1.RuleHealth{Path: custom, Reason: "Infinite",
			Message: `series have no value, such as {pod="web-0"} in namespace shop: the query gives an infinity (such as 1/0): correct metricsQuery`}},
		"rejected": {err: evaluationErr(query.ReasonRejected, "many-to-many matching not allowed"), want: &v1alpha1.RuleHealth{Path: custom, Reason: "Rejected",
			Message: `the source "prometheus" rejects a query of the rule in namespace shop (correct metricsQuery): many-to-many matching not allowed`}},
		"too large an answer": {err: evaluationErr(query.ReasonTooLarge, "more than 50000 samples"), want: &v1alpha1.RuleHealth{Path: custom, Reason: "TooLarge",
			Message: `the source "prometheus" has too large an answer to a query of the rule in namespace shop (aggregate in metricsQuery): more than 50000 samples`}},
		"late": {err: evaluationErr(query.ReasonTimeout, "no complete answer in time"), want: &v1alpha1.RuleHealth{Path: custom, Reason: "Timeout",
			Message: `the source "prometheus" is too slow with a query of the rule in namespace shop (make metricsQuery cheaper): no complete answer in time`}},
		"a status": {err: evaluationErr(query.ReasonBadStatus, "HTTP 500: bug"), want: &v1alpha1.RuleHealth{Path: custom, Reason: "BadStatus",
			Message: `the source "prometheus" does not answer a query of the rule in namespace shop (see the server's log): HTTP 500: bug`}},
		"a limit": {err: evaluationErr(query.ReasonRateLimited, "HTTP 429: slow down (raise the limit)"), want: &v1alpha1.RuleHealth{Path: custom, Reason: "RateLimited",
			Message: `the source "prometheus" refuses for now a query of the rule in namespace shop: HTTP 429: slow down (raise the limit)`}},
		"a status, as of all":  {err: evaluationErr(query.ReasonBadStatus, "HTTP 500: bug"), fails: true},
		"late, as all are":     {err: evaluationErr(query.ReasonTimeout, "no complete answer in time"), fails: true},
		"rejected, as all are": {err: evaluationErr(query.ReasonRejected, "no org id"), fails: true},
		"no connection":        {err: evaluationErr(query.ReasonConnectionFailed, "connection refused")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requests, lag := v1alpha1.MetricRule{SeriesQuery: "requests", Resources: namespacePod}, v1alpha1.MetricRule{SeriesQuery: "lag"}
			if test.rule != nil {
				test.rule(&requests)
				test.rule(&lag)
			}
			c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "other", Resources: namespacePod}, requests}, []v1alpha1.MetricRule{lag}), seriesOf("other", "namespace", "pod"), seriesOf("requests", "namespace", "pod"), seriesOf("lag", "namespace"))
			before := c.Health()
			mq, _, err := c.ObjectQuery(pods("shop", "requests", "web-0"))
			objects := []string{"web-0"}
			if test.external {
				mq, err = c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag"})
				objects = nil
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = mq.Values(test.answer, test.err, objects...)
			var want []v1alpha1.RuleHealth
			if test.want != nil {
				test.want.State = v1alpha1.RuleWarning
				want = append(want, *test.want)
			}
			if diff := cmp.Diff(want, c.QueryProblems(now, func(_ string, since time.Time) bool { return !test.fails && since.Equal(now) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.Health()); diff != "" {
				t.Errorf("health changed (-before +after):\n%s", diff)
			}
		})
	}
}

// Whoever is scraped chooses names and labels, and a source its words.
func TestQueryProblemsAreShort(t *testing.T) {
	long := strings.Repeat("\x1b\n\"", 10000)
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: "requests", Resources: namespacePod}}, []v1alpha1.MetricRule{{SeriesQuery: "lag"}}),
		seriesOf("requests", "namespace", "pod"), seriesOf("lag", "namespace"))
	custom, _, err := c.ObjectQuery(pods("shop", "requests", "web-0"))
	if err != nil {
		t.Fatal(err)
	}
	external, err := c.ExternalQuery(query.ExternalRequest{Namespace: "shop", Metric: "lag"})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"pod": long, long: long}
	answer := &query.Result{Time: now, Samples: []query.Sample{{Labels: labels, Value: math.NaN(), Time: now}}}
	for _, r := range []*query.MetricQuery{&custom, &external} {
		_, _ = r.Values(answer, nil)
	}
	all := c.QueryProblems(now, answers)
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	for _, h := range all {
		if len(h.Message) > 1000 || strings.ContainsAny(h.Message, "\x1b\n") {
			t.Errorf("%s: %d bytes: %q", h.Path, len(h.Message), h.Message)
		}
	}
}

// What is known of a rule is of that rule alone, as it is written now.
func TestQueryProblemsGoWithTheRule(t *testing.T) {
	rule := v1alpha1.MetricRule{SeriesQuery: "requests", Resources: namespacePod}
	edited := rule
	edited.DuplicatesPolicy = v1alpha1.DuplicatesSum
	tests := map[string]struct {
		change func(*Catalog)
		after  time.Duration
		want   int
	}{
		"nothing changes":  {func(*Catalog) {}, 0, 1},
		"another is added": {func(c *Catalog) { c.Apply(backend([]v1alpha1.MetricRule{rule, {SeriesQuery: "more"}}, nil)) }, 0, 1},
		"a CRD is added": {func(c *Catalog) {
			c.SetResources(index(metav1.APIResource{Name: "wheels", SingularName: "wheel", Kind: "Wheel", Namespaced: true}))
		}, 0, 1},
		"it is edited":       {func(c *Catalog) { c.Apply(backend([]v1alpha1.MetricRule{edited}, nil)) }, 0, 0},
		"it is removed":      {func(c *Catalog) { c.Apply(backend(nil, nil)) }, 0, 0},
		"it is put back":     {func(c *Catalog) { c.Apply(backend(nil, nil)); c.Apply(backend([]v1alpha1.MetricRule{rule}, nil)) }, 0, 0},
		"nobody asks longer": {func(*Catalog) {}, time.Hour, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCatalog(t, backend([]v1alpha1.MetricRule{rule}, nil), seriesOf("requests", "namespace", "pod"))
			mq, _, err := c.ObjectQuery(pods("shop", "requests", "web-0"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mq.Values(podSeries(1, 2), nil, "web-0"); err != nil {
				t.Fatal(err)
			}
			test.change(c)
			if got := c.QueryProblems(now.Add(test.after), answers); len(got) != test.want {
				t.Errorf("there are %+v, not %d", got, test.want)
			}
		})
	}
}

// Names that applications choose make no message of any length.
func TestMessagesAreBounded(t *testing.T) {
	c := newCatalog(t, backend([]v1alpha1.MetricRule{{SeriesQuery: `{__name__=~".+"}`, Resources: namespacePod}}, nil), seriesOf(strings.Repeat("x", 64<<10), strings.Repeat("y", 64<<10)))
	for _, r := range c.Health().Rules {
		if len(r.Message) > 1024 {
			t.Errorf("%s: %d bytes", r.Reason, len(r.Message))
		}
	}
}
