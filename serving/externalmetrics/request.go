// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/explain"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/valuecache"
)

// metricRequest asks for the values of one metric.
type metricRequest struct {
	reader    *reader
	namespace string
	// metric is the name of a metric, which may differ from the path's in case. Policies decide about it.
	metric string
}

var (
	_ valueapi.Request   = &metricRequest{}
	_ valueapi.Explainer = &metricRequest{}
)

// reader is what requests are answered from.
type reader struct {
	metrics  query.ExternalMetrics
	querier  query.Querier
	policies *Policies
}

// parse reads a request for …/namespaces/NAMESPACE/METRIC.
func (r *reader) parse(info *request.RequestInfo, _ url.Values) (valueapi.Request, error) {
	if info.Namespace == "" || info.Resource == "" {
		return nil, apierrors.NewBadRequest("the path of an external metric is namespaces/NAMESPACE/METRIC, where METRIC has " + query.EscapedSlash + " for each slash")
	}
	return &metricRequest{reader: r, namespace: info.Namespace, metric: r.metrics.ExternalName(info.Namespace, query.UnescapeName(info.Resource))}, nil
}

// List answers the values as they are now.
func (r *metricRequest) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if err := r.reader.policies.check(r.query(ctx, options)); err != nil {
		return nil, err
	}
	mq, err := r.read(query.ExternalRequest{Series: options.LabelSelector})
	if err != nil {
		return nil, err
	}
	result, err := r.reader.querier.Query(ctx, mq.Query)
	if err == nil && mq.Passes {
		return passedList(ctx, result), nil
	}
	values, err := mq.Values(result, err)
	if err == nil && len(values.Items) == 0 {
		err = mq.NoValues(result, values)
	}
	if err != nil {
		return nil, fmt.Errorf("external metric %q (%s): %w", r.metric, mq.Origin, err)
	}
	valueapi.Warn(ctx, values, r.omitted)
	return newList(r.metric, values), nil
}

// omitted says which series has no value.
func (r *metricRequest) omitted(o *query.Omission) string {
	return fmt.Sprintf("the series {%s} of external metric %q", labels.Set(o.Labels), r.metric)
}

// Explain says how the values come about.
func (r *metricRequest) Explain(ctx context.Context, options *metainternalversion.ListOptions) (*v1alpha1.MetricExplanation, error) {
	if err := r.reader.policies.check(r.query(ctx, options)); err != nil {
		return nil, err
	}
	mq, err := r.read(query.ExternalRequest{Series: options.LabelSelector, Explain: true})
	if err != nil {
		return nil, err
	}
	// If the query itself selects, its result need not have the labels of the selector.
	return explain.Explain(ctx, r.reader.querier, explain.Request{MetricQuery: mq, Series: mq.Select}), nil
}

// Subscribe implements valueapi.Request. Equal selectors that are written in another order are one
// subscription.
func (r *metricRequest) Subscribe(ctx context.Context, options *metainternalversion.ListOptions) (*valueapi.Subscription, error) {
	q := r.query(ctx, options)
	if err := r.reader.policies.check(q); err != nil {
		return nil, err
	}
	id := strconv.Quote(r.namespace) + strconv.Quote(r.metric)
	if options.LabelSelector != nil {
		id += options.LabelSelector.String()
	}
	watch := r.reader.policies.addWatch(q)
	return &valueapi.Subscription{
		Subscription: valuecache.Subscription{
			ID: id,
			Read: func() (query.MetricQuery, error) {
				return r.read(query.ExternalRequest{Series: options.LabelSelector, Watch: true})
			},
			Event: func(p valuecache.Point) runtime.Object { return newValue(r.metric, p.Window, &p.Value) },
		},
		What:    fmt.Sprintf("external metric %q", r.metric),
		Opened:  func(w *stream.Watcher) error { return watch.open(w.Revoke) },
		Release: watch.release,
	}, nil
}

// read returns the query of the metric for a request without namespace and metric.
func (r *metricRequest) read(q query.ExternalRequest) (query.MetricQuery, error) {
	q.Namespace, q.Metric = r.namespace, r.metric
	return r.reader.metrics.ExternalQuery(q)
}

// query is what policies decide about.
func (r *metricRequest) query(ctx context.Context, options *metainternalversion.ListOptions) policy.Query {
	user, _ := request.UserFrom(ctx)
	return policy.Query{Namespace: r.namespace, User: user, Metric: r.metric, Selector: options.LabelSelector}
}
