// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Duplicates says what becomes of several series of one object.
type Duplicates string

// What becomes of several series of one object.
const (
	// DuplicatesReject gives the object no value, and says so.
	DuplicatesReject  Duplicates = "Reject"
	DuplicatesSum     Duplicates = "Sum"
	DuplicatesAverage Duplicates = "Average"
	DuplicatesMinimum Duplicates = "Minimum"
	DuplicatesMaximum Duplicates = "Maximum"
)

// Reading is a question and how the values of a metric are read from its answer.
type MetricQuery struct {
	Query Query
	// Origin names what defines the metric, for messages: a rule by its path in
	// the MetricsBackend, or an object as KIND NAMESPACE/NAME.
	Origin string
	// ObjectLabel is the label that names the described object; empty where
	// Object does, or where values describe no object.
	ObjectLabel string
	// Object is the name of the one described object.
	Object string
	// Labels are added to the values of an external metric.
	Labels map[string]string
	// Select selects among the series of the answer by their labels, with those that
	// are added; nil for all. It is for questions that cannot do so themselves.
	Select labels.Selector
	// Duplicates is for several series of one object.
	Duplicates Duplicates
	// NaNAsZero makes zero of what is no number, as prometheus-adapter does.
	NaNAsZero bool
	// Fallback is what stands in for the values of a source that fails; may be nil.
	Fallback *Fallback
	// Shortfalls hear what Values finds missing; nil where nobody wants to know.
	Problems *ProblemTracker
}

// Equal says that two readings ask and read the same, whoever hears what is missing.
func (r *MetricQuery) Equal(o *MetricQuery) bool {
	a, b := *r, *o
	a.Problems, b.Problems = nil, nil
	return reflect.DeepEqual(a, b)
}

// Fallback stands in for an answer after a number of failures in a row.
type Fallback struct {
	AfterFailures int
	// Static is the value; nil for the last value.
	Static *float64
	// MaxAge is the age at which a last value is no longer used.
	MaxAge time.Duration
}
