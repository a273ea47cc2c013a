// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain reports how the values of a metric are computed: its definition, the query, the
// series that the source returned, and the values made from them.
package explain

import (
	"cmp"
	"context"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Request is an authorized request for a metric.
type Request struct {
	MetricQuery query.MetricQuery
	// Objects are the names of the requested objects; nil for all in the namespace. Results may
	// have others, which must not be shown to the client.
	Objects []string
	// Series selects among the values of an external metric; nil for all.
	Series labels.Selector

	// wanted has Objects, as there may be thousands of them and of series.
	wanted sets.Set[string]
}

// Explain evaluates the query as for any other client, and describes the result. A failure of the
// source is part of the explanation.
func Explain(ctx context.Context, querier query.Querier, r Request) *v1alpha1.MetricExplanation {
	mq := &r.MetricQuery
	r.wanted = sets.New(r.Objects...)
	e := &v1alpha1.MetricExplanation{
		TypeMeta:    metav1.TypeMeta{Kind: v1alpha1.KindMetricExplanation, APIVersion: v1alpha1.GroupVersion.String()},
		Origin:      mq.Origin,
		Remarks:     mq.Remarks,
		Source:      mq.Query.Source,
		Query:       mq.Query.Expression,
		Interval:    metav1.Duration{Duration: mq.Query.Interval},
		ObjectLabel: mq.ObjectLabel,
		Object:      mq.Object,
		Duplicates:  mq.Duplicates,
		NaNAsZero:   mq.NaNAsZero,
	}
	result, err := querier.Query(ctx, mq.Query)
	if err != nil {
		reason, message := query.ReasonOf(err, string(query.ReasonInternal))
		e.Failure = &v1alpha1.ExplainedFailure{Reason: reason, Message: message}
	} else {
		e.Evaluated = metav1.NewMicroTime(result.Time)
		e.Window = metav1.Duration{Duration: mq.Window}
		e.Warnings = result.Warnings
		r.addSeries(e, result.Samples)
	}
	values, _ := mq.Values(result, err, r.Objects...)
	if values == nil {
		return e // which is the failure
	}
	e.Fallback = values.SourceError != nil
	r.addValues(e, values)
	if e.ValueCount == 0 && len(e.Omitted) == 0 && result != nil && (r.Objects == nil || len(r.Objects) > 0) {
		why := mq.NoSeries(result)
		e.Omitted = append(e.Omitted, v1alpha1.ExplainedOmission{Reason: string(why.Reason), Message: why.Message})
	}
	return e
}

func (r *Request) addSeries(e *v1alpha1.MetricExplanation, samples []query.Sample) {
	for i := range samples {
		s := &samples[i]
		if !r.concerns(cmp.Or(r.MetricQuery.Object, s.Labels[r.MetricQuery.ObjectLabel]), s.Labels) {
			e.OtherSeries++
			continue
		}
		if e.SeriesCount++; e.SeriesCount <= v1alpha1.MaxExplained {
			e.Series = append(e.Series, v1alpha1.ExplainedSeries{
				Labels: s.Labels, Value: strconv.FormatFloat(s.Value, 'f', -1, 64), Time: metav1.NewMicroTime(s.Time),
			})
		}
	}
}

// concerns reports whether a series or a value belongs to the request. A series without an object is shown only to
// clients that may read all objects.
func (r *Request) concerns(object string, of map[string]string) bool {
	if r.MetricQuery.Object != "" || r.MetricQuery.ObjectLabel != "" {
		return r.Objects == nil || r.wanted.Has(object)
	}
	return r.Series == nil || r.Series.Matches(labels.Merge(of, r.MetricQuery.Labels))
}

func (r *Request) addValues(e *v1alpha1.MetricExplanation, values *query.Values) {
	for i := range values.Items {
		v := &values.Items[i]
		if !r.concerns(v.Object, v.Labels) {
			continue
		}
		if e.ValueCount++; e.ValueCount > v1alpha1.MaxExplained {
			continue
		}
		explained := v1alpha1.ExplainedValue{Object: v.Object, Value: v.Quantity.String(), Time: metav1.NewTime(v.Time)}
		if v.Object == "" {
			explained.Labels = v.Labels
		}
		e.Values = append(e.Values, explained)
	}
	for _, o := range values.Omitted {
		if r.concerns(o.Object, o.Labels) {
			e.Omitted = append(e.Omitted, v1alpha1.ExplainedOmission{
				Object: o.Object, Labels: o.Labels, Reason: string(o.Reason), Message: o.Message,
			})
		}
	}
}
