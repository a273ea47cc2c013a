// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// ObjectMetric is a metric of objects that exists now.
type ObjectMetric struct {
	// Resource is plural, with its group.
	Resource schema.GroupResource
	// Kind of the objects in the version that the cluster prefers.
	Kind       schema.GroupVersionKind
	Namespaced bool
	Name       string
}

// ObjectRequest is a request for a metric of objects.
type ObjectRequest struct {
	// Resource as the client wrote it; equivalent names of a resource that moved
	// between groups mean the same.
	Resource schema.GroupResource
	// Namespace of the objects; empty for those without.
	Namespace string
	// Names of the objects; nil for all, if the query need not name them.
	Names []string
	// Watch says that the query is subscribed to, and should stay the same while objects come and go.
	Watch bool
	// Selected says that a selector selected the names, however many there are; otherwise the
	// client named the object.
	Selected bool
	Metric   string
	// Objects selects among all objects by their labels, for another implementation (labelSelector); may be nil.
	Objects labels.Selector
	// Series selects among the series of the metric (metricLabelSelector); may be nil.
	Series labels.Selector
	// Explain says that MetricQuery.Remarks are wanted.
	Explain bool
}

// AllNamespaces is the namespace of requests for external metrics that are the same in all.
const AllNamespaces = "*"

// ExternalRequest is a request for a metric that describes no object.
type ExternalRequest struct {
	// Namespace may be AllNamespaces.
	Namespace string
	// Metric is the name, escapes resolved.
	Metric string
	// Series selects among the values by their labels; may be nil.
	Series labels.Selector
	// Watch says that the query is subscribed to.
	Watch bool
	// Explain says that MetricQuery.Remarks are wanted.
	Explain bool
}

// ObjectMetrics has the metrics of objects and their queries.
type ObjectMetrics interface {
	// ObjectMetrics returns up to limit metrics that exist now, each once, and how many
	// there are. Metrics of rules come before those of CustomMetrics, each in order, and each rule
	// or namespace has the same share for each resource. A long name counts as several metrics.
	// The slice is shared; it is the same one while nothing has changed.
	ObjectMetrics(limit int) (first []ObjectMetric, total int)
	// ObjectQuery returns the query of a metric, and what the metric describes. Its error is
	// apimachinery's NotFound for a metric that does not exist, and BadRequest for a request
	// that no metric could serve.
	ObjectQuery(r ObjectRequest) (MetricQuery, ObjectMetric, error)
}

// ExternalMetrics has the external metrics and their queries.
type ExternalMetrics interface {
	// ExternalMetrics returns the names that exist now in some namespace, as
	// ObjectMetrics does.
	ExternalMetrics(limit int) (first []string, total int)
	// ExternalName returns the name of the metric that a request means, as client-go puts names into
	// lower case: that of the request if there is such a metric, else the only one in the namespace
	// that differs in case alone, be it that a rule makes it and it has no series, else that of the request.
	ExternalName(namespace, requested string) string
	// ExternalQuery returns the query of a metric, with the errors of ObjectQuery.
	ExternalQuery(r ExternalRequest) (MetricQuery, error)
}

// MetricQuery is the query of a metric, and how to read values from its result.
type MetricQuery struct {
	Query Query
	// Passes says that another implementation answers the query: clients get its API objects unchanged
	// (Sample.Passed), and its errors (Failure.Status).
	Passes bool
	// Origin names what defines the metric, for messages: a rule by its path in
	// the MetricsBackend, or an object as KIND NAMESPACE/NAME.
	Origin string
	// Remarks name what defines the metric, too, but does not count.
	Remarks []string
	// Window is the longest range over which the expression looks back; zero for
	// instantaneous values.
	Window time.Duration
	// ObjectLabel is the label that names the described object; empty if Object is set, or
	// values describe no object.
	ObjectLabel string
	// Object is the name of the one described object.
	Object string
	// Labels are added to the values of an external metric.
	Labels map[string]string
	// Select selects among the series of the result by their labels, including Labels; nil
	// for all. It is for queries that cannot select themselves.
	Select labels.Selector
	// QuotedKeys are the keys of the client's selector in the expression that PromQL has to
	// quote, in order. Not every source parses them.
	QuotedKeys []string
	// Duplicates is how several series of one object are combined.
	Duplicates v1alpha1.DuplicatesPolicy
	// NaNAsZero replaces NaN with zero, as prometheus-adapter does.
	NaNAsZero bool
	// MaxSampleAge is the age of a sample at the instant of evaluation up to which it has a value; zero for any.
	// The Query then has SampleTimesRequired.
	MaxSampleAge time.Duration
	// OmitInvalid serves the other series of an external metric or an object if one has no value.
	OmitInvalid bool
	// Fallback replaces the values of a failing source; may be nil.
	Fallback *Fallback
	// Problems is updated by Values; may be nil.
	Problems *ProblemTracker
}

// Equal reports whether two metric queries evaluate and read the same, whatever their Problems.
func (m *MetricQuery) Equal(o *MetricQuery) bool {
	a, b := *m, *o
	a.Problems, b.Problems = nil, nil
	return reflect.DeepEqual(a, b)
}

// selectorError returns a BadRequest that wraps the error of a source that cannot parse the keys
// of the client's selector, and nil for other errors.
func (m *MetricQuery) selectorError(err error) error {
	var failure *Failure
	if !errors.As(err, &failure) || !failure.Unparsable {
		return nil
	}
	// The message quotes the place of the error, Prometheus' ten bytes of it. Elsewhere the error
	// is the query's own.
	const quoted = 8
	if !slices.ContainsFunc(m.QuotedKeys, func(key string) bool { return strings.Contains(failure.Error(), key[:min(len(key), quoted)]) }) {
		return nil
	}
	return fmt.Errorf("%w: %w", apierrors.NewBadRequest(fmt.Sprintf(
		"the source cannot parse a query by %q, as PromQL before Prometheus 3 has only labels of letters, digits and _: select by another key", m.QuotedKeys)), err)
}

// Fallback replaces a result after a number of failures in a row.
type Fallback struct {
	AfterFailures int
	// Static is the value; nil for the last value.
	Static *float64
	// MaxAge is the age at which a last value is no longer used.
	MaxAge time.Duration
}

// fallbackValues returns the values that replace those of a failing source, or the error.
// Last values keep their time; a static one has the time of the failure.
func (m *MetricQuery) fallbackValues(err error, objects []string) (*Values, error) {
	var failed *EvaluationError
	if m.Fallback == nil || !errors.As(err, &failed) || failed.FailedIntervals < max(m.Fallback.AfterFailures, 1) {
		return nil, err
	}
	if m.Fallback.Static != nil {
		return m.staticValues(failed, objects), nil
	}
	last := failed.LastResult
	if last == nil || failed.Time.Sub(last.Time) > m.Fallback.MaxAge {
		return nil, err
	}
	v := m.read(last, objects)
	if m.reject(v) != nil {
		return nil, err
	}
	v.SourceError = failed
	return v, nil
}

// staticValues returns the static value for each object, or once for a metric that
// describes none, with the labels that Select requires.
func (m *MetricQuery) staticValues(failed *EvaluationError, objects []string) *Values {
	if m.Object != "" || m.ObjectLabel == "" {
		objects = []string{""} // there is no label for it
	}
	samples := make([]Sample, len(objects))
	for i, object := range objects {
		of := m.requiredLabels()
		if m.ObjectLabel != "" {
			of[m.ObjectLabel] = object
		}
		samples[i] = Sample{Labels: of, Value: *m.Fallback.Static, Time: failed.Time}
	}
	v := &Values{Time: failed.Time, SourceError: failed}
	m.readSamples(v, samples)
	return v
}

// requiredLabels returns the labels for which Select allows a single value.
func (m *MetricQuery) requiredLabels() map[string]string {
	required := map[string]string{}
	if m.Select == nil {
		return required
	}
	requirements, _ := m.Select.Requirements()
	for i := range requirements {
		key := requirements[i].Key()
		if value, exact := m.Select.RequiresExactMatch(key); exact {
			required[key] = value
		}
	}
	return required
}
