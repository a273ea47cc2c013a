// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// ObjectQuery implements query.ObjectMetrics.
func (c *Catalog) ObjectQuery(r query.ObjectRequest) (query.MetricQuery, query.ObjectMetric, error) {
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
	d, b, unknown := c.find(declaringNamespace(r, key), key)
	switch {
	case d != nil:
		return d.read(r.Series), d.metric, nil
	case b != nil:
		mq, err := c.bindingQuery(b, namespace, r)
		return mq, b.metric, err
	}
	return query.MetricQuery{}, query.ObjectMetric{}, c.missing(declaringNamespace(r, key), key, unknown)
}

// ExternalQuery implements query.ExternalMetrics.
func (c *Catalog) ExternalQuery(r query.ExternalRequest) (query.MetricQuery, error) {
	everywhere := r.Namespace == query.AllNamespaces
	if err := checkNamespace(r.Namespace); err != nil && !everywhere {
		return query.MetricQuery{}, err
	}
	key := metricKey{name: r.Metric}
	d, b, unknown := c.find(r.Namespace, key)
	switch {
	case d != nil:
		return d.read(r.Series), nil
	case b != nil && everywhere && b.rule.namespaced:
		return query.MetricQuery{}, badRequest("%s reads the metric %q from the namespace of the request: ask for it under one instead of *", b.rule.path, r.Metric)
	case b != nil:
		return c.externalQuery(b, r.Namespace, r.Series)
	}
	return query.MetricQuery{}, c.missing(r.Namespace, key, unknown)
}

// DefinesObjectMetric reports whether a declared metric or a rule defines the metric of a request, be it that it has no
// series now, or that the declared metric is not in effect. It is false while the series of a rule, or the resources of
// the cluster, are not known yet.
func (c *Catalog) DefinesObjectMetric(r query.ObjectRequest) bool {
	resource, ok := c.resources.Current().Find(r.Resource)
	if !ok {
		return false
	}
	key := metricKey{resource.GroupResource(), r.Metric}
	return c.defines(declaringNamespace(r, key), key)
}

// DefinesExternalMetric reports the same for an external metric.
func (c *Catalog) DefinesExternalMetric(namespace, metric string) bool {
	return c.defines(namespace, metricKey{name: metric})
}

func (c *Catalog) defines(namespace string, key metricKey) bool {
	if d, b, _ := c.find(namespace, key); d != nil || b != nil {
		return true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, why := c.withoutSeries(key)
	return why != "" || c.notInEffect(namespace, key) != nil
}

// find returns what declares a metric in a namespace, the effective rule for it, and why rules
// may lack it; nil for none.
func (c *Catalog) find(namespace string, key metricKey) (*declared, *binding, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.declared[namespacedMetric{namespace, key}], c.metrics.effective(key), c.unknown[key.external()]
}

// resource returns the resource of a request.
func (c *Catalog) resource(r query.ObjectRequest) (restmapping.Resource, error) {
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

// bindingQuery returns the query for objects by their names, or for all of them. If the query
// for all objects provably yields the same for those named, and more than a few are asked for, or
// watched, it returns that, so that requests for different objects share one evaluation.
func (c *Catalog) bindingQuery(b *binding, namespace string, r query.ObjectRequest) (query.MetricQuery, error) {
	names, series := r.Names, r.Series
	if names == nil {
		return b.metricQuery(namespace, nil, series)
	}
	key := newSharedKey(b, namespace, series)
	shared, cached := c.shared.Get(key)
	if !cached {
		shared = &sharedQuery{query: b.sharedQuery(namespace, series)}
		c.shared.Add(key, shared)
	}
	if shared.count(names, r.Watch, int(b.family.count.Load()), b.rule.interval, c.clock.Now()) {
		return *shared.query, nil
	}
	return b.metricQuery(namespace, names, series)
}

// metricQuery returns the query for objects by their names, or for all of them.
func (b *binding) metricQuery(namespace string, names []string, series labels.Selector) (query.MetricQuery, error) {
	q, err := b.input(namespace, series)
	if err != nil {
		return query.MetricQuery{}, err
	}
	q.selectObjects(b.objectLabel, names)
	return b.newQuery(q, namespace)
}

// externalQuery returns the query for an external metric, which is cached.
func (c *Catalog) externalQuery(b *binding, namespace string, series labels.Selector) (query.MetricQuery, error) {
	key := newSharedKey(b, namespace, series)
	if cached, ok := c.shared.Get(key); ok {
		return *cached.query, nil
	}
	mq, err := externalQuery(b, namespace, series)
	if err == nil {
		c.shared.Add(key, &sharedQuery{query: &mq})
	}
	return mq, err
}

func externalQuery(b *binding, namespace string, series labels.Selector) (query.MetricQuery, error) {
	within := namespace
	if !b.rule.namespaced {
		within = ""
	}
	q, err := b.input(within, series)
	if err != nil {
		return query.MetricQuery{}, err
	}
	mq, err := b.newQuery(q, namespace)
	if err == nil && !q.selectsEverywhere(mq.Query.Expression) {
		mq.Select = selectSeries(series, true)
	}
	if err == nil {
		mq.Query.Batch = q.batch(mq.Query.Expression)
	}
	return mq, err
}

// newQuery renders the metric query for a request in a namespace. That is its tenant only if the
// template uses it, so that namespaces with the same expression share one evaluation.
func (b *binding) newQuery(q *templateInput, requester string) (query.MetricQuery, error) {
	e, err := b.render(q)
	if errors.Is(err, querytemplate.ErrTooLong) && len(q.data.LabelMatchers) > querytemplate.MaxOutput/10 {
		return query.MetricQuery{}, badRequest("the objects are too many for one query, as %s must name each: select fewer, or use an external metric that combines them (type: External)", b.rule.path)
	}
	switch {
	case err == nil:
	case apierrors.IsBadRequest(err):
		return query.MetricQuery{}, err
	case len(q.selected) > 0:
		return query.MetricQuery{}, badRequest("the metric %q cannot be asked with this selector, of which metricsQuery in %s makes no PromQL (%v): select by other labels in the autoscaler's metric.selector", b.metric.Name, b.rule.path, err)
	case len(q.matchers) == 0 || b.rule.needsLabels:
		return query.MetricQuery{}, badRequest("the metric %q needs a selector, without which metricsQuery in %s makes no PromQL (%v): set metric.selector.matchLabels in the autoscaler", b.metric.Name, b.rule.path, err)
	default:
		return query.MetricQuery{}, unavailable("%s: metricsQuery does not make PromQL for the series %q: %v", b.rule.path, b.family.name, err)
	}
	if m, ok := q.replacedNegation(e.text); ok {
		return query.MetricQuery{}, badRequest("the metric %q cannot be selected by %s: %s: metricsQuery asks by the values of labels only (.LabelValuesByName), not for those that differ; select by = or in (an autoscaler's metric.selector by matchLabels, or by the operator In)", b.metric.Name, m, b.rule.path)
	}
	tenant := ""
	if q.usesNamespace {
		tenant, requester = q.namespace, ""
	}
	times := query.SampleTimesNotNeeded
	if b.rule.maxSampleAge > 0 {
		times = query.SampleTimesRequired
	}
	return query.MetricQuery{
		Query:        query.Query{Source: b.rule.source.name, Expression: e.text, Interval: b.rule.interval, Tenant: tenant, Requester: requester, SampleTimes: times},
		Window:       e.window,
		Origin:       b.rule.path,
		ObjectLabel:  b.objectLabel,
		QuotedKeys:   q.quotedKeys(e.text),
		Duplicates:   b.rule.duplicates,
		NaNAsZero:    b.rule.spec.NaNAsZero,
		MaxSampleAge: b.rule.maxSampleAge,
		OmitInvalid:  b.rule.spec.InvalidValuesPolicy == v1alpha1.InvalidValuesOmit,
		Problems:     &b.rule.queryProblems,
	}, nil
}

func checkRequest(r query.ObjectRequest, resource restmapping.Resource) error {
	switch {
	case resource.Namespaced && r.Namespace == "":
		return badRequest("%s are in namespaces: ask at namespaces/NAMESPACE/%s/NAME/%s", resource.GroupResource(), r.Resource, r.Metric)
	case !resource.Namespaced && r.Namespace != "" && resource.GroupResource() != namespaces:
		// Below a namespace, a Role would let its subjects read objects of the cluster.
		return badRequest("%s are in no namespace, and an autoscaler asks only for objects of its own namespace (type: Object): "+
			"use an external metric in its place (type: External); other clients ask at %s/NAME/%s", resource.GroupResource(), r.Resource, r.Metric)
	case r.Names != nil && len(r.Names) == 0:
		return badRequest("the request names no object")
	}
	if r.Namespace != "" {
		if err := checkNamespace(r.Namespace); err != nil {
			return err
		}
	}
	for _, name := range r.Names {
		if name == "" {
			return badRequest("the name of an object is empty")
		}
		if err := checkValue("name of an object", name); err != nil {
			return err
		}
	}
	return nil
}

// checkNamespace rejects what cannot be the name of a namespace: the path of a request may have
// anything there, and in a regular expression "shop|bank" would be two namespaces.
func checkNamespace(namespace string) error {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return badRequest("the namespace %q cannot be one: %s", namespace, strings.Join(problems, "; "))
	}
	return nil
}

// checkValue rejects what cannot be the name of an object, and what could end the quotes in
// which a template puts it or has a meaning in a regular expression. Dots are allowed; see render.
func checkValue(what, value string) error {
	const most = 253
	if len(value) > most {
		return badRequest("the %s is longer than %d characters", what, most)
	}
	if !utf8.ValidString(value) {
		return badRequest("the %s is not UTF-8", what)
	}
	for _, r := range value {
		if strings.ContainsRune("\"'`\\{}^|()[]*+?$", r) || !unicode.IsPrint(r) {
			return badRequest("the %s has the character %q", what, r)
		}
	}
	return nil
}

// notFound returns an error with just the message, to which apimachinery's constructor would add.
func notFound(format string, args ...any) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: fmt.Sprintf(format, args...),
	}}
}

func badRequest(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// unavailable returns an error that is not the client's fault, and may be temporary.
func unavailable(format string, args ...any) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf(format, args...))
}
