// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/explain"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// reader reads metrics.
type reader struct {
	metrics query.ObjectMetrics
	querier query.Querier
	objects Objects
	clock   clock.PassiveClock
}

// targetRequest is a request for a target.
type targetRequest struct {
	*reader
	target
}

var _ valueapi.Request = &targetRequest{}

// List returns the values as they are now. Where one object is named there is exactly
// one, which clients count on (GetForObject in k8s.io/metrics). A selector that
// selects no object has an empty list: that there is no object is not an error of the
// metric's.
func (r *targetRequest) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	resolved, err := r.resolve(query.ObjectRequest{Objects: options.LabelSelector}, r.names(ctx, options.LabelSelector))
	if err != nil {
		return nil, err
	}
	if resolved.empty() {
		return &custom_metrics.MetricValueList{ListMeta: metav1.ListMeta{ResourceVersion: query.ResourceVersion(r.clock.Now())}}, nil
	}
	result, err := r.querier.Query(ctx, resolved.metricQuery.Query)
	if err == nil && resolved.metricQuery.Passes {
		return passedList(ctx, result), nil
	}
	values, err := resolved.values(result, err)
	if err != nil {
		return nil, err
	}
	list := &custom_metrics.MetricValueList{ListMeta: metav1.ListMeta{ResourceVersion: values.ResourceVersion()}}
	list.Items = resolved.objects(values)
	if len(list.Items) == 0 && (!r.all() || result != nil && resolved.metricQuery.NoSeries(result).Reason == query.OmitReasonNoObject) {
		return nil, r.noValue(&resolved.metricQuery, result, values)
	}
	valueapi.Warn(ctx, values, resolved.omitted)
	return list, nil
}

// resolved is a target with its names, and how they are read.
type resolved struct {
	*target
	// names are ordered; nil if another implementation selects the objects.
	names []string
	// metricQuery is for all objects if no name is selected.
	metricQuery query.MetricQuery
	metric      query.ObjectMetric
	// selector is metricLabelSelector as values show it; nil for none, or where its
	// form has no place for it (comparisons with numbers).
	selector *metav1.LabelSelector
}

// empty says that no object is selected.
func (r *resolved) empty() bool { return len(r.names) == 0 && !r.metricQuery.Passes }

// namesOf returns the names of the objects that are meant by *.
type namesOf func(schema.GroupVersionResource) ([]string, error)

// names are those that a label selector selects now; nil selects all.
func (r *targetRequest) names(ctx context.Context, selector labels.Selector) namesOf {
	return func(resource schema.GroupVersionResource) ([]string, error) {
		return r.objects.Names(ctx, resource, r.namespace, everythingIfNil(selector))
	}
}

func everythingIfNil(selector labels.Selector) labels.Selector {
	if selector == nil {
		return labels.Everything()
	}
	return selector
}

// resolve finds out which objects are meant, and how their metric is read, by the label selector, and for the purpose,
// of a request that has nothing else.
func (r *targetRequest) resolve(ask query.ObjectRequest, all namesOf) (*resolved, error) {
	out := &resolved{target: &r.target}
	ask.Resource, ask.Namespace, ask.Metric, ask.Series = r.resource, r.namespace, r.metric, r.series
	if r.all() {
		// First of all whether there is such a metric, and of what: the path may name the
		// objects' resource by a name that it had before.
		mq, metric, err := r.metrics.ObjectQuery(ask)
		if err != nil {
			return nil, err
		}
		if mq.Passes {
			out.metricQuery, out.metric = mq, metric
			return out, nil
		}
		names, err := all(metric.Resource.WithVersion(metric.Kind.Version))
		if err != nil {
			return nil, fmt.Errorf("select %s: %w", metric.Resource, err)
		}
		if out.names = names; out.empty() {
			out.metricQuery, out.metric = mq, metric
			return out, nil
		}
	} else {
		out.names = []string{r.name}
	}
	ask.Names, ask.Selected = out.names, r.all()
	var err error
	if out.metricQuery, out.metric, err = r.metrics.ObjectQuery(ask); err != nil {
		return nil, err
	}
	if out.metricQuery.Passes {
		out.names = nil
		return out, nil
	}
	if !r.all() && ask.Objects != nil && !ask.Objects.Empty() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector selects among all objects, but the path names %q: leave it out, or name *", r.name))
	}
	if r.series != nil {
		if parsed, err := metav1.ParseToLabelSelector(r.series.String()); err == nil {
			out.selector = parsed
		}
	}
	return out, nil
}

// values reads the values of an answer. Its error says what was read.
func (r *resolved) values(result *query.Result, err error) (*query.Values, error) {
	values, err := r.metricQuery.Values(result, err, r.names...)
	if err != nil {
		return nil, fmt.Errorf("metric %q of %s (%s): %w", r.target.metric, r.metric.Resource, r.metricQuery.Origin, err)
	}
	return values, nil
}

// wanted says whether a value is of an object that was asked for: an answer may be
// about more.
func (r *resolved) wanted(object string) bool {
	if r.metricQuery.Passes {
		return true
	}
	_, found := slices.BinarySearch(r.names, object)
	return found
}

// objects makes API objects of the values that were asked for.
func (r *resolved) objects(values *query.Values) []custom_metrics.MetricValue {
	items := make([]custom_metrics.MetricValue, 0, min(len(r.names), len(values.Items)))
	for i := range values.Items {
		if v := &values.Items[i]; r.wanted(v.Object) {
			items = append(items, r.object(v, values.Window))
		}
	}
	return items
}

// noValue is the answer where the one object that was named has no value, or no object can have one.
func (r *targetRequest) noValue(mq *query.MetricQuery, result *query.Result, values *query.Values) error {
	if values.SourceError != nil {
		return fmt.Errorf("metric %q of %s %q (%s) has no last value: %w", r.metric, r.resource, r.name, mq.Origin, values.SourceError)
	}
	why := mq.NoSeries(result).Message
	if o := values.Omission(r.name); o != nil {
		why = o.Error()
	}
	where := ""
	if r.namespace != "" {
		where = fmt.Sprintf(" in namespace %q", r.namespace)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("metric %q of %s %q%s has no value: %s", r.metric, r.resource, r.name, where, why),
		Details: &metav1.StatusDetails{Group: custom_metrics.GroupName, Kind: r.resource.String() + "/" + r.metric, Name: r.name},
	}}
}

// omitted says what of this request has no value.
func (r *resolved) omitted(o *query.Omission) string {
	if !r.wanted(o.Object) {
		return ""
	}
	return fmt.Sprintf("metric %q of %s %q", r.target.metric, r.target.resource, o.Object)
}

var _ valueapi.Explainer = &targetRequest{}

// Explain says how the values come about that List returns. Of an answer it tells no
// more than concerns the objects that were asked for.
func (r *targetRequest) Explain(ctx context.Context, options *metainternalversion.ListOptions) (*v1alpha1.MetricExplanation, error) {
	resolved, err := r.resolve(query.ObjectRequest{Objects: options.LabelSelector, Explain: true}, r.names(ctx, options.LabelSelector))
	if err != nil {
		return nil, err
	}
	if resolved.metricQuery.Passes {
		return explain.Explain(ctx, r.querier, explain.Request{MetricQuery: resolved.metricQuery}), nil
	}
	// Where no object is selected, none may be told of; nil would be all.
	names := append([]string{}, resolved.names...)
	return explain.Explain(ctx, r.querier, explain.Request{MetricQuery: resolved.metricQuery, Objects: names}), nil
}
