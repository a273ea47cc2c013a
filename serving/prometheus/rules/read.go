// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// ObjectQuery implements query.ObjectMetrics.
func (c *Catalogue) ObjectQuery(r query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
	resource, err := c.resource(r)
	if err != nil {
		return query.MetricQuery{}, query.ObjectMetric{}, err
	}
	if err := checkRequest(r, resource); err != nil {
		return query.MetricQuery{}, query.ObjectMetric{}, err
	}
	namespace := r.Namespace
	if !resource.Namespaced {
		namespace = ""
	}
	key := metricKey{resource.GroupResource(), r.Metric}
	c.mu.RLock()
	d := c.declaredCustom[namespacedMetric{teamOf(r, key), key}]
	b := newest(c.made.custom[key])
	unknown := c.unknownCustom
	c.mu.RUnlock()
	switch {
	case d != nil:
		mq, err := d.read(r.Series)
		return mq, d.metric, err
	case b != nil:
		mq, err := c.readBinding(b, namespace, r.Names, r.Series)
		return mq, b.metric, err
	case unknown != nil:
		return query.MetricQuery{}, query.ObjectMetric{}, unavailable("metric %q of %s: %v", r.Metric, resource.GroupResource(), unknown)
	}
	return query.MetricQuery{}, query.ObjectMetric{}, notFound("no rule and no CustomMetric makes the metric %q of %s", r.Metric, resource.GroupResource())
}

// ExternalQuery implements query.ExternalMetrics.
func (c *Catalogue) ExternalQuery(r query.ExternalRequest) (query.MetricQuery, error) {
	if err := checkNamespace(r.Namespace); err != nil {
		return query.MetricQuery{}, err
	}
	c.mu.RLock()
	d := c.declaredExternal[externalKey(r.Namespace, r.Metric)]
	b := newest(c.made.external[r.Metric])
	unknown := c.unknownExternal
	c.mu.RUnlock()
	switch {
	case d != nil:
		return d.read(r.Series)
	case b != nil:
		return readExternal(b, r.Namespace, r.Series)
	case unknown != nil:
		return query.MetricQuery{}, unavailable("metric %q: %v", r.Metric, unknown)
	}
	return query.MetricQuery{}, notFound("no rule makes the metric %q, and no ExternalMetric does in namespace %q", r.Metric, r.Namespace)
}

// resource returns what the request's resource means.
func (c *Catalogue) resource(r query.ObjectRequest) (restmapping.Resource, error) {
	index := c.resources.Current()
	if resource, ok := index.Find(r.Resource); ok {
		return resource, nil
	}
	c.resources.RefreshSoon()
	if index.Empty() {
		return restmapping.Resource{}, unavailable("the cluster's resources are not known yet, so %q cannot be looked up", r.Resource)
	}
	return restmapping.Resource{}, notFound("the cluster has no resource %q", r.Resource)
}

// readBinding returns a query for all objects where that answers the request as well, so that
// requests for different objects share one evaluation.
func (c *Catalogue) readBinding(b *binding, namespace string, names []string, series labels.Selector) (query.MetricQuery, error) {
	if names == nil {
		return b.metricQuery(namespace, nil, series)
	}
	key := wideKey{binding: b, namespace: namespace}
	if series != nil && !series.Empty() {
		key.series = series.String()
	}
	wide, known := c.wide.get(key)
	if !known {
		wide = b.widen(namespace, series)
		c.wide.put(key, wide)
	}
	if wide != nil && b.family.count.Load() <= maxWideSeries {
		return *wide, nil
	}
	return b.metricQuery(namespace, names, series)
}

// metricQuery returns the query for objects by their names, or for all of them.
func (b *binding) metricQuery(namespace string, names []string, series labels.Selector) (query.MetricQuery, error) {
	q, err := b.template(namespace, series)
	if err != nil {
		return query.MetricQuery{}, err
	}
	if names == nil {
		q.all(b.objectLabel)
	} else {
		q.named(b.objectLabel, names)
	}
	return b.newQuery(q, namespace)
}

// readExternal returns the query for an external metric.
func readExternal(b *binding, namespace string, series labels.Selector) (query.MetricQuery, error) {
	if !b.rule.namespaced {
		namespace = ""
	}
	q, err := b.template(namespace, series)
	if err != nil {
		return query.MetricQuery{}, err
	}
	mq, err := b.newQuery(q, namespace)
	if err == nil && !q.selects(mq.Query.Expression) {
		mq.Select = selectKnown(series)
	}
	return mq, err
}

// newQuery renders the metric query. Its tenant is the namespace only if the expression contains
// it, so that namespaces with the same expression share one evaluation.
func (b *binding) newQuery(q *request, namespace string) (query.MetricQuery, error) {
	expression, err := b.render(q)
	if errors.Is(err, querytemplate.ErrTooLong) && len(q.data.LabelMatchers) > querytemplate.MaxOutput/10 {
		return query.MetricQuery{}, badRequest("the objects are too many for one query, as %s must name each: select fewer", b.rule.path)
	}
	switch {
	case err == nil:
	case apierrors.IsBadRequest(err):
		return query.MetricQuery{}, err
	case len(q.selected) > 0:
		return query.MetricQuery{}, badRequest("the metric %q cannot be asked with this selector: %s: metricsQuery does not make PromQL with it: %v", b.metric.Name, b.rule.path, err)
	case len(q.matchers) == 0 || b.rule.needsLabels:
		return query.MetricQuery{}, badRequest("the metric %q needs a selector: %s: metricsQuery does not make PromQL without one: %v", b.metric.Name, b.rule.path, err)
	default:
		return query.MetricQuery{}, unavailable("%s: metricsQuery does not make PromQL for the series %q: %v", b.rule.path, b.family.name, err)
	}
	if m, ok := q.inverted(expression); ok {
		return query.MetricQuery{}, badRequest("the metric %q cannot be selected by %s: %s: metricsQuery asks by the values of labels only (.LabelValuesByName), not for those that differ; select by = or in", b.metric.Name, m, b.rule.path)
	}
	tenant := ""
	if strings.Contains(expression, namespace) {
		tenant = namespace
	}
	return query.MetricQuery{
		Query:       query.Query{Source: b.rule.source.name, Expression: expression, Interval: b.rule.interval, Tenant: tenant},
		Origin:      b.rule.path,
		ObjectLabel: b.objectLabel,
		Duplicates:  b.rule.duplicates,
		NaNAsZero:   b.rule.spec.NaNAsZero,
		Problems:    &b.rule.queryProblems,
	}, nil
}

func notFound(format string, args ...any) error {
	return status(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf(format, args...))
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// unavailable is for what is not the client's fault, and may be well a little later.
func unavailable(format string, args ...any) error {
	return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, fmt.Sprintf(format, args...))
}

// status is an error with just our words; apimachinery's own constructors add theirs.
func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}
