// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
)

// request is what a template sees, while it is put together.
type request struct {
	data     querytemplate.Query
	matchers []string
	// selected is what the client's selector asks for.
	selected []promql.Matcher
	// dotted are the labels whose one value has a dot, and whether a client's selector
	// has that.
	dotted map[string]bool
}

// template begins with what prometheus-adapter begins with: the metric's selector, then
// the namespace.
func (b *binding) template(namespace string, series labels.Selector) (*request, error) {
	selections, err := promql.FromSelector(series)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	q := &request{
		data:   querytemplate.Query{Series: b.family.name, LabelValuesByName: make(map[string]string, len(selections)+2)},
		dotted: map[string]bool{},
	}
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
		q.values(label, of, true)
	}
	if namespace != "" {
		q.matchers = append(q.matchers, promql.Equal(b.namespaceLabel, namespace).String())
		q.several(b.namespaceLabel, namespace) // which has no dots
	}
	return q, nil
}

// all asks for all objects, by whose label values are told apart.
func (q *request) all(label string) {
	q.several(label, promql.Anything)
	q.matchers = append(q.matchers, promql.Set(label).String())
	q.group(label)
}

// named asks for objects by their names.
func (q *request) named(label string, names []string) {
	q.values(label, names, false)
	q.matchers = append(q.matchers, promql.Equal(label, names...).String())
	q.group(label)
}

// group says by which labels values are told apart.
func (q *request) group(labels ...string) {
	q.data.GroupBySlice = make([]string, len(labels))
	for i, label := range labels {
		q.data.GroupBySlice[i] = promql.LabelName(label)
	}
	q.data.GroupBy = strings.Join(q.data.GroupBySlice, ",")
}

func (q *request) query() querytemplate.Query {
	q.data.LabelMatchers = strings.Join(q.matchers, ",")
	return q.data
}

// values gives the template the values of a label, which a client's selector has or not.
// One value stands for itself.
func (q *request) values(label string, values []string, selected bool) {
	if len(values) != 1 {
		q.several(label, alternatives(values))
		return
	}
	q.several(label, values[0])
	if strings.Contains(values[0], ".") {
		q.dotted[label] = selected
	}
}

// several gives the template what stands for values of a label in a regular expression.
func (q *request) several(label, pattern string) {
	q.data.LabelValuesByName[label] = pattern
	delete(q.dotted, label)
}

// alternatives joins values for a regular expression in a template's own quotes, as
// LabelValuesByName has them. What means something in one is escaped without a backslash,
// which would need another in quotes.
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
