// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
)

// templateInput builds the input of a template for one request.
type templateInput struct {
	data     querytemplate.Query
	matchers []string
	// selected are the matchers of the client's selector.
	selected []promql.Matcher
	// namespace is that of the request, whose matcher follows those of selected; usesNamespace is set
	// by render.
	namespace     string
	usesNamespace bool
	// dotted are the labels with a single value that contains a dot; true if the value is from
	// the client's selector.
	dotted map[string]bool
}

// input returns an input with the matchers of the selector and the namespace, in the order of
// prometheus-adapter.
func (b *binding) input(namespace string, series labels.Selector) (*templateInput, error) {
	selections, err := promql.FromSelector(series)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	q := &templateInput{
		data:   querytemplate.Query{Series: b.family.name, LabelValuesByName: make(map[string]string, len(selections)+2)},
		dotted: map[string]bool{},
	}
	for _, s := range selections {
		for _, value := range s.Values {
			if err := checkValue("value in the selector (an autoscaler's metric.selector)", value); err != nil {
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
		q.setValues(label, of, true)
	}
	if namespace != "" {
		q.namespace = namespace
		q.matchers = append(q.matchers, promql.Equal(b.namespaceLabel, namespace).String())
		q.setPattern(b.namespaceLabel, namespace) // names of namespaces have no dots
	}
	return q, nil
}

// dependsOnNamespace reports whether the template renders another expression for another namespace.
// The matcher, which only few templates leave out, shows that without rendering again.
func (b *binding) dependsOnNamespace(q *templateInput, expression string) bool {
	if m := q.matchers[len(q.selected)]; strings.Contains(expression, m) && !strings.Contains(b.rule.spec.MetricsQuery, m) {
		return true
	}
	const nowhere = "metricsbackend-sample-namespace"
	other := templateInput{data: q.data, matchers: slices.Clone(q.matchers)}
	other.matchers[len(q.selected)] = promql.Equal(b.namespaceLabel, nowhere).String()
	other.data.LabelValuesByName = maps.Clone(q.data.LabelValuesByName)
	other.data.LabelValuesByName[b.namespaceLabel] = nowhere
	text, err := execute(b.rule.query, other.query())
	return err != nil || text != expression
}

// selectObjects selects objects by their names, or all for nil, and groups by their label.
func (q *templateInput) selectObjects(label string, names []string) {
	matcher := promql.Set(label)
	if names == nil {
		q.setPattern(label, promql.AnyValue)
	} else {
		q.setValues(label, names, false)
		matcher = promql.Equal(label, names...)
	}
	q.matchers = append(q.matchers, matcher.String())
	q.groupBy(label)
}

func (q *templateInput) groupBy(labels ...string) {
	q.data.GroupBySlice = make([]string, len(labels))
	for i, label := range labels {
		q.data.GroupBySlice[i] = promql.LabelName(label)
	}
	q.data.GroupBy = strings.Join(q.data.GroupBySlice, ",")
}

func (q *templateInput) query() querytemplate.Query {
	q.data.LabelMatchers = strings.Join(q.matchers, ",")
	return q.data
}

// setValues sets the values of a label; selected says that they are from the client's
// selector. A single value is not escaped, so that templates may compare with it.
func (q *templateInput) setValues(label string, values []string, selected bool) {
	if len(values) != 1 {
		q.setPattern(label, alternatives(values))
		return
	}
	q.setPattern(label, values[0])
	if strings.Contains(values[0], ".") {
		q.dotted[label] = selected
	}
}

// setPattern sets the regular expression for the values of a label.
func (q *templateInput) setPattern(label, pattern string) {
	q.data.LabelValuesByName[label] = pattern
	delete(q.dotted, label)
}

// alternatives returns a regular expression for the values, which templates put into quotes of
// their own: so it has no backslashes, which would need another one there.
func alternatives(values []string) string {
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

// maxDotted limits the labels with a dot in their value that a request may select by, if the
// template uses values of labels: the query is rendered for each.
const maxDotted = 8

// render returns the expression for an input, in which each dot of a value matches only a dot.
//
// A template may put a value into an equality or a regular expression matcher, and a dot is
// literal in label="a.b" but any character in label=~"a.b": env=p..d would read prod despite a
// policy. No other such character passes checkValue.
func (b *binding) render(q *templateInput) (expression, error) {
	data := q.query()
	e, err := b.rule.renderFor(b.family.name, b.plain, data)
	q.usesNamespace = err == nil && q.namespace != "" && b.dependsOnNamespace(q, e.text)
	if err != nil || len(q.dotted) == 0 {
		return e, err
	}
	labels := slices.Sorted(maps.Keys(q.dotted))
	// Most templates use <<.LabelMatchers>> but no values, which needs no parsing to tell.
	text, err := execute(b.rule.query, replaceDots(data, "[.]", labels...))
	switch {
	case err == nil && text == e.text:
		return e, nil
	case len(labels) > maxDotted:
		return expression{}, badRequest("the request selects by %d labels whose value has a dot, and %s can have %d: metricsQuery may take it for any character", len(labels), b.rule.path, maxDotted)
	}
	for _, label := range labels {
		if e, err = b.escapeDots(&data, label, e, q.dotted[label]); err != nil {
			return expression{}, err
		}
	}
	return e, nil
}

// escapeDots renders again with the dots of a label's value escaped, if the template uses the
// value as a regular expression. It fails if the template uses a value of the client's selector
// otherwise, too. Names of objects are safe then: results are distinguished by their labels, and
// policies do not apply to them.
func (b *binding) escapeDots(data *querytemplate.Query, label string, e expression, selected bool) (expression, error) {
	escaped := replaceDots(*data, "[.]", label)
	use, other := b.valueUse(*data, escaped, label, e)
	switch {
	case !use.Regexps:
		return e, nil
	case !use.Others:
		data.LabelValuesByName = escaped.LabelValuesByName
		return other, nil
	case selected:
		return expression{}, badRequest("the value %q of the label %q has a dot, and %s: metricsQuery may take it for any character: select by another label, or use <<.LabelMatchers>> there", data.LabelValuesByName[label], label, b.rule.path)
	}
	return e, nil
}

// valueUse returns how the template uses the value of a label, from what changes when it is
// escaped, and the expression with the escaped value. If it cannot tell, it returns all uses.
func (b *binding) valueUse(data, escaped querytemplate.Query, label string, e expression) (use promql.Difference, other expression) {
	unknown := promql.Difference{Regexps: true, Others: true}
	other, err := b.rule.renderFor(b.family.name, b.plain, escaped)
	if err == nil {
		if other == e {
			return promql.Difference{}, other
		}
		if use, err = promql.Compare(e.text, other.text); err != nil {
			return unknown, expression{} // not PromQL
		}
		return use, other
	}
	// The value may be a number, such as a quantile, in which a digit can replace the dot.
	digit, err := b.rule.renderFor(b.family.name, b.plain, replaceDots(data, "0", label))
	if err != nil {
		return unknown, expression{}
	}
	if use, err = promql.Compare(e.text, digit.text); err != nil || use.Regexps {
		return unknown, expression{}
	}
	return use, expression{}
}

// replaceDots returns data with the dots in the values of labels replaced.
func replaceDots(data querytemplate.Query, dot string, labels ...string) querytemplate.Query {
	data.LabelValuesByName = maps.Clone(data.LabelValuesByName)
	for _, label := range labels {
		data.LabelValuesByName[label] = strings.ReplaceAll(data.LabelValuesByName[label], ".", dot)
	}
	return data
}
