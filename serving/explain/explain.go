// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain says how the values of a metric come about: what defines it, what
// the source was asked and answered, and what became of that.
package explain

import (
	"context"
	"errors"
	"math"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Request is a request for a metric, as it was authorized.
type Request struct {
	MetricQuery query.MetricQuery
	// Objects are the names of the objects that were asked for; nil for all in the
	// namespace. Answers may hold others, which are none of the client's business.
	Objects []string
	// Series selects among the values of an external metric; nil for all.
	Series labels.Selector

	// wanted are Objects: there may be thousands, to be looked for in each of many series.
	wanted sets.Set[string]
}

// Explain asks the question as any other client would, and tells of its answer. What
// goes wrong with the source is part of the explanation.
func Explain(ctx context.Context, querier query.Querier, r Request) *v1alpha1.MetricExplanation {
	mq := &r.MetricQuery
	r.wanted = sets.New(r.Objects...)
	e := &v1alpha1.MetricExplanation{
		TypeMeta:    metav1.TypeMeta{Kind: v1alpha1.KindMetricExplanation, APIVersion: v1alpha1.GroupVersion.String()},
		Origin:      mq.Origin,
		Source:      mq.Query.Source,
		Query:       mq.Query.Expression,
		Interval:    metav1.Duration{Duration: mq.Query.Interval},
		ObjectLabel: mq.ObjectLabel,
		Object:      mq.Object,
		Duplicates:  v1alpha1.DuplicatesPolicy(mq.Duplicates),
		NaNAsZero:   mq.NaNAsZero,
	}
	result, err := querier.Query(ctx, mq.Query)
	if err != nil {
		e.Failure = failure(err)
	} else {
		e.Evaluated = metav1.NewMicroTime(result.Time)
		e.Window = metav1.Duration{Duration: result.Window}
		e.Warnings = result.Warnings
		r.tellSeries(e, result.Samples)
	}
	values, err := mq.Values(result, err, r.Objects...)
	if err != nil {
		return e // which is the failure
	}
	e.Fallback = values.SourceError != nil
	r.tellValues(e, values)
	return e
}

func failure(err error) *v1alpha1.ExplainedFailure {
	var f *query.Failure
	if errors.As(err, &f) {
		return &v1alpha1.ExplainedFailure{Reason: string(f.Reason), Message: f.Message}
	}
	return &v1alpha1.ExplainedFailure{Reason: string(query.ReasonInternal), Message: err.Error()}
}

func (r *Request) tellSeries(e *v1alpha1.MetricExplanation, samples []query.Sample) {
	for i := range samples {
		s := &samples[i]
		if !r.concerns(s.Labels) {
			e.OtherSeries++
			continue
		}
		if e.SeriesCount++; e.SeriesCount <= v1alpha1.MaxExplained {
			e.Series = append(e.Series, v1alpha1.ExplainedSeries{
				Labels: s.Labels, Value: number(s.Value), Time: metav1.NewMicroTime(s.Time),
			})
		}
	}
}

// concerns tells whether a series is of what was asked for.
func (r *Request) concerns(of map[string]string) bool {
	switch {
	case r.MetricQuery.Object != "":
		return r.wants(r.MetricQuery.Object)
	case r.MetricQuery.ObjectLabel != "":
		// A series that names no object is of none that the client may not see only where
		// it may see all of them.
		return r.wants(of[r.MetricQuery.ObjectLabel])
	}
	return r.selects(of)
}

func (r *Request) wants(object string) bool {
	return r.Objects == nil || r.wanted.Has(object)
}

// selects goes by the labels that a value would have.
func (r *Request) selects(of map[string]string) bool {
	if r.Series == nil {
		return true
	}
	return r.Series.Matches(labels.Merge(of, r.MetricQuery.Labels))
}

func (r *Request) tellValues(e *v1alpha1.MetricExplanation, values *query.Values) {
	shown := func(object string, of map[string]string) bool {
		if r.MetricQuery.Object == "" && r.MetricQuery.ObjectLabel == "" {
			return r.selects(of)
		}
		return r.wants(object)
	}
	for i := range values.Items {
		v := &values.Items[i]
		if !shown(v.Object, v.Labels) {
			continue
		}
		if e.ValueCount++; e.ValueCount > v1alpha1.MaxExplained {
			continue
		}
		told := v1alpha1.ExplainedValue{Object: v.Object, Value: v.Quantity.String(), Time: metav1.NewTime(v.Time)}
		if v.Object == "" {
			told.Labels = v.Labels
		}
		e.Values = append(e.Values, told)
	}
	for _, o := range values.Omitted {
		if shown(o.Object, o.Labels) {
			e.Omitted = append(e.Omitted, v1alpha1.ExplainedOmission{
				Object: o.Object, Labels: o.Labels, Reason: string(o.Reason), Message: o.Message,
			})
		}
	}
}

// number is as Prometheus writes it.
func number(value float64) string {
	switch {
	case math.IsInf(value, 1):
		return "+Inf"
	case math.IsInf(value, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(value, 'f', -1, 64)
}
