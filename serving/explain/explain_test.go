// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

// querier returns one result for all queries.
type querier struct {
	answer *query.Result
	err    error
}

func (a querier) Query(context.Context, query.Query) (*query.Result, error) { return a.answer, a.err }

func (querier) Subscribe(query.Query, time.Time, func(*query.Result, error)) func() { return func() {} }

func sample(value float64, pairs ...string) query.Sample {
	set := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	return query.Sample{Labels: set, Value: value, Time: at}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	pods := query.MetricQuery{
		Query:  query.Query{Source: "prometheus", Expression: `sum(hits{namespace="shop"}) by (pod)`, Interval: 15 * time.Second},
		Origin: "spec.customMetrics.rules[0]", Window: 2 * time.Minute, ObjectLabel: "pod", Duplicates: v1alpha1.DuplicatesReject,
	}
	external := query.MetricQuery{
		Query:  query.Query{Source: "prometheus", Expression: "queue_depth", Interval: time.Minute},
		Origin: "ExternalMetric shop/depth", Labels: map[string]string{"team": "shop"},
	}
	head := func(r query.MetricQuery) v1alpha1.MetricExplanation {
		return v1alpha1.MetricExplanation{
			TypeMeta: metav1.TypeMeta{Kind: "MetricExplanation", APIVersion: "metricsbackend.io/v1alpha1"},
			Origin:   r.Origin, Source: "prometheus", Query: r.Query.Expression,
			Interval: metav1.Duration{Duration: r.Query.Interval}, ObjectLabel: r.ObjectLabel,
			Duplicates: r.Duplicates,
		}
	}
	micro, seconds := metav1.NewMicroTime(at), metav1.NewTime(at)
	static := 3.0
	fallback := pods
	fallback.Fallback = &query.Fallback{AfterFailures: 2, Static: &static}
	down := &query.EvaluationError{Failure: &query.Failure{Source: "prometheus", Reason: query.ReasonConnectionFailed, Message: "connection refused"}, FailedIntervals: 2, Time: at}

	for name, test := range map[string]struct {
		request Request
		querier querier
		want    func(*v1alpha1.MetricExplanation)
	}{
		"objects, and no others than were asked for": {
			request: Request{MetricQuery: pods, Objects: []string{"a", "b"}},
			querier: querier{answer: &query.Result{Time: at, Warnings: []string{"slow"}, Samples: []query.Sample{
				sample(12.5, "pod", "a"), sample(math.NaN(), "pod", "b"), sample(7, "pod", "secret"), sample(8, "job", "x"),
			}}},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Evaluated, e.Window, e.Warnings = micro, metav1.Duration{Duration: 2 * time.Minute}, []string{"slow"}
				e.Series = []v1alpha1.ExplainedSeries{
					{Labels: map[string]string{"pod": "a"}, Value: "12.5", Time: micro},
					{Labels: map[string]string{"pod": "b"}, Value: "NaN", Time: micro},
				}
				e.SeriesCount, e.OtherSeries = 2, 2
				e.Values, e.ValueCount = []v1alpha1.ExplainedValue{{Object: "a", Value: "12500m", Time: seconds}}, 1
				e.Omitted = []v1alpha1.ExplainedOmission{{Object: "b", Labels: map[string]string{"pod": "b"}, Reason: "NaN"}}
			},
		},
		"all objects": {
			request: Request{MetricQuery: pods},
			querier: querier{answer: &query.Result{Time: at, Samples: []query.Sample{
				sample(1, "pod", "a"), sample(math.Inf(-1), "job", "x"),
			}}},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Evaluated, e.Window = micro, metav1.Duration{Duration: 2 * time.Minute}
				e.Series = []v1alpha1.ExplainedSeries{
					{Labels: map[string]string{"pod": "a"}, Value: "1", Time: micro},
					{Labels: map[string]string{"job": "x"}, Value: "-Inf", Time: micro},
				}
				e.SeriesCount = 2
				e.Values, e.ValueCount = []v1alpha1.ExplainedValue{{Object: "a", Value: "1", Time: seconds}}, 1
				e.Omitted = []v1alpha1.ExplainedOmission{{Labels: map[string]string{"job": "x"}, Reason: "NoObject"}}
			},
		},
		"external, by its labels and those that are added": {
			request: Request{MetricQuery: external, Series: labels.SelectorFromSet(labels.Set{"queue": "red", "team": "shop"})},
			querier: querier{answer: &query.Result{Time: at, Samples: []query.Sample{
				sample(17, "queue", "red"), sample(18, "queue", "blue"),
			}}},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Evaluated = micro
				e.Series = []v1alpha1.ExplainedSeries{{Labels: map[string]string{"queue": "red"}, Value: "17", Time: micro}}
				e.SeriesCount, e.OtherSeries = 1, 1
				e.Values = []v1alpha1.ExplainedValue{{Labels: map[string]string{"queue": "red", "team": "shop"}, Value: "17", Time: seconds}}
				e.ValueCount = 1
			},
		},
		"external, of which one series has no value": {
			request: Request{MetricQuery: external, Series: labels.SelectorFromSet(labels.Set{"team": "shop"})},
			querier: querier{answer: &query.Result{Time: at, Samples: []query.Sample{
				sample(4, "queue", "red"), sample(math.Inf(1), "queue", "blue"),
			}}},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Evaluated = micro
				e.Series = []v1alpha1.ExplainedSeries{
					{Labels: map[string]string{"queue": "red"}, Value: "4", Time: micro},
					{Labels: map[string]string{"queue": "blue"}, Value: "+Inf", Time: micro},
				}
				e.SeriesCount = 2
				e.Omitted = []v1alpha1.ExplainedOmission{{Labels: map[string]string{"queue": "blue", "team": "shop"}, Reason: "Infinite"}}
			},
		},
		"nothing": {
			request: Request{MetricQuery: external},
			querier: querier{answer: &query.Result{Time: at}},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Evaluated, e.Omitted = micro, []v1alpha1.ExplainedOmission{{Reason: "NoSeries"}}
			},
		},
		"a source that is down": {
			request: Request{MetricQuery: pods, Objects: []string{"a"}},
			querier: querier{err: fmt.Errorf("wrapped: %w", down)},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Failure = &v1alpha1.ExplainedFailure{Reason: "ConnectionFailed", Message: "connection refused"}
			},
		},
		"a fallback in use": {
			request: Request{MetricQuery: fallback, Objects: []string{"a"}},
			querier: querier{err: down},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Failure = &v1alpha1.ExplainedFailure{Reason: "ConnectionFailed", Message: "connection refused"}
				e.Fallback = true
				e.Values, e.ValueCount = []v1alpha1.ExplainedValue{{Object: "a", Value: "3", Time: seconds}}, 1
			},
		},
		"an error of another kind": {
			request: Request{MetricQuery: pods},
			querier: querier{err: errors.New("out of order")},
			want: func(e *v1alpha1.MetricExplanation) {
				e.Failure = &v1alpha1.ExplainedFailure{Reason: "Internal", Message: "out of order"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := head(test.request.MetricQuery)
			test.want(&want)
			got := Explain(t.Context(), test.querier, test.request)
			for i := range got.Omitted {
				if got.Omitted[i].Message == "" {
					t.Errorf("nothing is said of %+v", got.Omitted[i])
				}
				got.Omitted[i].Message = "" // query's own words
			}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestExplanationsAreBounded(t *testing.T) {
	t.Parallel()
	result := &query.Result{Time: at}
	for i := range 250 {
		result.Samples = append(result.Samples, sample(1, "queue", fmt.Sprint(i)))
	}
	got := Explain(t.Context(), querier{answer: result}, Request{})
	if len(got.Series) != v1alpha1.MaxExplained || len(got.Values) != v1alpha1.MaxExplained || got.SeriesCount != 250 || got.ValueCount != 250 {
		t.Errorf("%d of %d series, %d of %d values", len(got.Series), got.SeriesCount, len(got.Values), got.ValueCount)
	}
}

// A selector may select thousands of objects, of which few of many series are.
func BenchmarkManyObjects(b *testing.B) {
	a := &query.Result{Time: at}
	for i := range 50_000 {
		a.Samples = append(a.Samples, query.Sample{Labels: map[string]string{"pod": fmt.Sprintf("other-%06d", i)}, Value: 1})
	}
	objects := make([]string, 5_000)
	for i := range objects {
		objects[i] = fmt.Sprintf("named-%06d", i)
	}
	for b.Loop() {
		Explain(b.Context(), querier{answer: a}, Request{MetricQuery: query.MetricQuery{ObjectLabel: "pod"}, Objects: objects})
	}
}
