// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// noSeries means: the result has no series, or none of what was asked for. It is the reason of no problem.
const noSeries OmitReason = "NoSeries"

const maxLabels = 500 // bytes of a series' labels in a message

// reject removes the values of an external metric if one of its series has none, and returns that as
// an error: autoscalers add the values, and would scale down by a sum of the rest.
func (m *MetricQuery) reject(v *Values) error {
	rest := len(v.Items)
	if m.Object != "" || m.ObjectLabel != "" || v.Omissions == 0 {
		return nil
	}
	first, more := &v.Omitted[0], ""
	if m.OmitInvalid && rest > 0 {
		// Series with the same labels are no invalid values.
		i := slices.IndexFunc(v.Omitted, func(o Omission) bool { return o.Reason == OmitReasonDuplicate })
		if i < 0 {
			return nil
		}
		first = &v.Omitted[i]
	}
	v.Items = nil
	if v.Omissions > 1 {
		more = fmt.Sprintf(" (and %d series more without a value)", v.Omissions-1)
	}
	if first.Reason != OmitReasonDuplicate && first.Reason != OmitReasonTooOld {
		more += "; correct the query"
	}
	if rest > 0 && first.Reason != OmitReasonDuplicate {
		more += fmt.Sprintf(", or set invalidValuesPolicy to Omit in %s, which serves the other series", m.Origin)
	}
	return fmt.Errorf("%w: %w%s", noValue("there is no value, since the series %s has none", text.Printable(labelKey(first.Labels), maxLabels)), first, more)
}

// NoValues returns the error for values of an external metric without Items: why a source that fails
// has no last value, or a NotFound that says what the result has.
func (m *MetricQuery) NoValues(result *Result, v *Values) error {
	if v.SourceError != nil {
		return fmt.Errorf("there is no last value: %w", v.SourceError)
	}
	return noValue("there is no value: %s", m.NoSeries(result).Message)
}

func noValue(format string, args ...any) error {
	status := apierrors.NewNotFound(schema.GroupResource{}, "")
	status.ErrStatus.Message = fmt.Sprintf(format, args...)
	return status
}

// NoSeries says why a result has no series of what was asked for.
func (m *MetricQuery) NoSeries(result *Result) *Omission {
	n := len(result.Samples)
	why := func(reason OmitReason, format string, args ...any) *Omission {
		return &Omission{Reason: reason, Message: fmt.Sprintf("the source answers %d series, but none ", n) + fmt.Sprintf(format, args...)}
	}
	switch {
	case n == 0:
		return &Omission{Reason: noSeries, Message: "the source answers no series to the query"}
	case m.lacksObjectLabel(result):
		return why(OmitReasonNoObject, "with the label %q, which names the object: group by it in the query (by (<<.GroupBy>>))", m.ObjectLabel)
	case m.Select != nil && !slices.ContainsFunc(result.Samples, func(s Sample) bool { return m.Select.Matches(labels.Set(mergeLabels(s.Labels, m.Labels))) }):
		for _, key := range slices.Sorted(maps.Keys(m.requiredLabels())) {
			if !slices.ContainsFunc(result.Samples, func(s Sample) bool { return mergeLabels(s.Labels, m.Labels)[key] != "" }) {
				return why(noSeries, "with the label %q, by which the selector selects (an autoscaler's metric.selector): the query must keep it", key)
			}
		}
		return why(noSeries, "that the selector %q selects (an autoscaler's metric.selector)", m.Select)
	}
	return why(noSeries, "of an object that was asked for")
}
