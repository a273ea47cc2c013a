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

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// ReadObjects implements query.ObjectMetrics.
func (c *Catalogue) ReadObjects(r query.ObjectRequest) (query.Reading, query.ObjectMetric, error) {
	resource, err := c.resource(r)
	if err != nil {
		return query.Reading{}, query.ObjectMetric{}, err
	}
	if err := checkRequest(r, resource); err != nil {
		return query.Reading{}, query.ObjectMetric{}, err
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
		reading, err := d.read(r.Series)
		return reading, d.metric, err
	case b != nil:
		reading, err := c.readBinding(b, namespace, r.Names, r.Series)
		return reading, b.metric, err
	case unknown != nil:
		return query.Reading{}, query.ObjectMetric{}, unavailable("metric %q of %s: %v", r.Metric, resource.GroupResource(), unknown)
	}
	return query.Reading{}, query.ObjectMetric{}, notFound("no rule and no CustomMetric makes the metric %q of %s", r.Metric, resource.GroupResource())
}

// ReadExternal implements query.ExternalMetrics.
func (c *Catalogue) ReadExternal(r query.ExternalRequest) (query.Reading, error) {
	if err := checkValue("namespace", r.Namespace); err != nil {
		return query.Reading{}, err
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
		return query.Reading{}, unavailable("metric %q: %v", r.Metric, unknown)
	}
	return query.Reading{}, notFound("no rule makes the metric %q, and no ExternalMetric does in namespace %q", r.Metric, r.Namespace)
}

// resource returns what the request's resource means.
func (c *Catalogue) resource(r query.ObjectRequest) (restmapping.Resource, error) {
	index := c.resources.Current()
	if resource, ok := index.Find(r.Resource); ok {
		return resource, nil
	}
	c.resources.Wanted()
	if index.Empty() {
		return restmapping.Resource{}, unavailable("the cluster's resources are not known yet, so %q cannot be looked up", r.Resource)
	}
	return restmapping.Resource{}, notFound("the cluster has no resource %q", r.Resource)
}

func checkRequest(r query.ObjectRequest, resource restmapping.Resource) error {
	switch {
	case resource.Namespaced && r.Namespace == "":
		return badRequest("%s are in namespaces: ask for the metric under one", resource.GroupResource())
	case !resource.Namespaced && r.Namespace != "" && resource.GroupResource() != namespaces:
		return badRequest("%s are in no namespace: ask for the metric without one", resource.GroupResource())
	case r.Names != nil && len(r.Names) == 0:
		return badRequest("the request names no object")
	}
	if err := checkValue("namespace", r.Namespace); err != nil {
		return err
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

// checkValue refuses what no object is called, and what would leave the quotes in
// which a template may put it.
func checkValue(what, value string) error {
	const most = 253
	if len(value) > most {
		return badRequest("the %s is longer than %d characters", what, most)
	}
	if !utf8.ValidString(value) {
		return badRequest("the %s is not UTF-8", what)
	}
	for _, r := range value {
		if strings.ContainsRune("\"'`\\{}^", r) || !unicode.IsPrint(r) {
			return badRequest("the %s has the character %q", what, r)
		}
	}
	return nil
}

// readBinding asks for all objects where that answers the request as well.
func (c *Catalogue) readBinding(b *binding, namespace string, names []string, series labels.Selector) (query.Reading, error) {
	if names == nil {
		return b.reading(namespace, nil, series)
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
	return b.reading(namespace, names, series)
}

// reading asks for objects by their names, or for all of them.
func (b *binding) reading(namespace string, names []string, series labels.Selector) (query.Reading, error) {
	q, err := b.template(namespace, series)
	if err != nil {
		return query.Reading{}, err
	}
	if names == nil {
		q.object(b.objectLabel, promql.Set(b.objectLabel), promql.Anything)
	} else {
		q.object(b.objectLabel, promql.Equal(b.objectLabel, names...), alternatives(names))
	}
	return b.ask(q, namespace)
}

// readExternal asks for the values of an external metric.
func readExternal(b *binding, namespace string, series labels.Selector) (query.Reading, error) {
	if !b.rule.namespaced {
		namespace = ""
	}
	q, err := b.template(namespace, series)
	if err != nil {
		return query.Reading{}, err
	}
	reading, err := b.ask(q, namespace)
	if err == nil && !q.selects(reading.Question.Expression) {
		reading.Select = selectKnown(series)
	}
	return reading, err
}

// request is what a template sees, while it is put together.
type request struct {
	data     querytemplate.Query
	matchers []string
	// selected is what the client's selector asks for.
	selected []promql.Matcher
}

// template begins with what prometheus-adapter begins with: the metric's selector, then
// the namespace.
func (b *binding) template(namespace string, series labels.Selector) (*request, error) {
	selections, err := promql.FromSelector(series)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	q := &request{data: querytemplate.Query{Series: b.family.name, LabelValuesByName: make(map[string]string, len(selections)+2)}}
	for _, s := range selections {
		for _, value := range s.Values {
			if err := checkValue("value in the selector", value); err != nil {
				return nil, err
			}
		}
		q.matchers = append(q.matchers, s.Matcher.String())
		q.selected = append(q.selected, s.Matcher)
	}
	values, err := valuesByLabel(selections)
	if err != nil {
		return nil, err
	}
	for label, of := range values {
		q.data.LabelValuesByName[label] = alternatives(of)
	}
	if namespace != "" {
		q.matchers = append(q.matchers, promql.Equal(b.namespaceLabel, namespace).String())
		q.data.LabelValuesByName[b.namespaceLabel] = namespace
	}
	return q, nil
}

// object adds the matcher of objects, and the label by which values are told apart.
func (q *request) object(label string, m promql.Matcher, value string) {
	q.matchers = append(q.matchers, m.String())
	q.data.LabelValuesByName[label] = value
	q.group(label)
}

func (q *request) query() querytemplate.Query {
	q.data.LabelMatchers = strings.Join(q.matchers, ",")
	return q.data
}

// ask makes the question. The namespace is its owner where the question depends on it:
// what is the same for all namespaces is asked once for all.
func (b *binding) ask(q *request, namespace string) (query.Reading, error) {
	expression, err := b.rule.renderFor(b.family.name, b.plain, q.query())
	if errors.Is(err, querytemplate.ErrTooLong) && len(q.data.LabelMatchers) > querytemplate.MaxOutput/10 {
		return query.Reading{}, badRequest("the objects are too many for one query, as %s must name each: select fewer", b.rule.path)
	}
	switch {
	case err == nil:
	case len(q.selected) > 0:
		return query.Reading{}, badRequest("the metric %q cannot be asked with this selector: %s: metricsQuery does not make PromQL with it: %v", b.metric.Name, b.rule.path, err)
	case len(q.matchers) == 0 || b.rule.needsLabels:
		return query.Reading{}, badRequest("the metric %q needs a selector: %s: metricsQuery does not make PromQL without one: %v", b.metric.Name, b.rule.path, err)
	default:
		return query.Reading{}, unavailable("%s: metricsQuery does not make PromQL for the series %q: %v", b.rule.path, b.family.name, err)
	}
	if m, ok := q.inverted(expression); ok {
		return query.Reading{}, badRequest("the metric %q cannot be selected by %s: %s: metricsQuery asks by the values of labels only (.LabelValuesByName), not for those that differ; select by = or in", b.metric.Name, m, b.rule.path)
	}
	owner := ""
	if strings.Contains(expression, namespace) {
		owner = namespace
	}
	return query.Reading{
		Question:    query.Question{Source: b.rule.source.name, Expression: expression, Interval: b.rule.interval, Owner: owner},
		Origin:      b.rule.path,
		ObjectLabel: b.objectLabel,
		Duplicates:  b.rule.duplicates,
		NaNAsZero:   b.rule.spec.NaNAsZero,
	}, nil
}

// alternatives joins values for a regular expression in a template's own quotes, as
// LabelValuesByName has them; one value stands for itself. What means something in a
// regular expression is escaped without a backslash, which would need another in quotes.
func alternatives(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	var s strings.Builder
	for i, value := range values {
		if i > 0 {
			s.WriteByte('|')
		}
		for _, r := range value {
			if strings.ContainsRune(".+*?()|[]$", r) {
				s.WriteString("[" + string(r) + "]")
				continue
			}
			s.WriteRune(r)
		}
	}
	return s.String()
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
