// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
)

// render makes the expression of a request, in which each dot of a value means a dot.
//
// A template may put the one value of a label into a matcher of either kind, and a dot is
// itself in label="a.b" and any character in label=~"a.b": env=p..d would read prod, past a
// policy. It is the one such character that values of selectors and names can have.
func (b *binding) render(q *request) (string, error) {
	data := q.query()
	expression, err := b.rule.renderFor(b.family.name, b.plain, data)
	for _, label := range slices.Sorted(maps.Keys(q.dotted)) {
		if err != nil {
			break
		}
		expression, err = b.escapeDots(&data, label, expression, q.dotted[label])
	}
	return expression, err
}

// escapeDots renders again with the dots of a value escaped, if the template takes that value
// for a regular expression. One that takes it for other things, too, cannot be asked.
func (b *binding) escapeDots(data *querytemplate.Query, label, expression string, selected bool) (string, error) {
	value := data.LabelValuesByName[label]
	escaped := *data
	escaped.LabelValuesByName = maps.Clone(data.LabelValuesByName)
	escaped.LabelValuesByName[label] = strings.ReplaceAll(value, ".", "[.]")
	other, err := b.rule.renderFor(b.family.name, b.plain, escaped)
	if err == nil && other == expression {
		return expression, nil
	}
	both := badRequest("the value %q of the label %q has a dot, and %s: metricsQuery may take it for any character: use <<.LabelMatchers>> there", value, label, b.rule.path)
	matches, unknown := promql.InRegexps(expression, value)
	switch {
	case unknown != nil && selected, unknown == nil && err != nil && matches:
		return "", both
	case unknown != nil, err != nil:
		// In another language objects are told apart by their labels in the answer, and no
		// policy is about those. What is not PromQL once escaped is a number, such as a quantile.
		return expression, nil
	}
	d, err := promql.Compare(expression, other)
	switch {
	case err != nil, d.Regexps && d.Others:
		return "", both
	case d.Regexps:
		data.LabelValuesByName = escaped.LabelValuesByName
		return other, nil
	}
	return expression, nil
}
