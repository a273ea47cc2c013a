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

// maxDotted is how many labels with a dot in their value a request may select by, if the
// rule puts them into its query one by one: each is tried out.
const maxDotted = 8

// render makes the expression of a request, in which each dot of a value means a dot.
//
// A template may put the one value of a label into a matcher of either kind, and a dot is
// itself in label="a.b" and any character in label=~"a.b": env=p..d would read prod, past a
// policy. It is the one such character that values of selectors and names can have.
func (b *binding) render(q *request) (string, error) {
	data := q.query()
	expression, err := b.rule.renderFor(b.family.name, b.plain, data)
	if err != nil || len(q.dotted) == 0 {
		return expression, err
	}
	labels := slices.Sorted(maps.Keys(q.dotted))
	// Most templates have <<.LabelMatchers>> and no values, and that is known without parsing.
	text, err := b.rule.query.Execute(with(data, "[.]", labels...))
	switch {
	case err == nil && strings.TrimSpace(text) == expression:
		return expression, nil
	case len(labels) > maxDotted:
		return "", badRequest("the request selects by %d labels whose value has a dot, and %s can have %d: metricsQuery may take it for any character", len(labels), b.rule.path, maxDotted)
	}
	for _, label := range labels {
		if expression, err = b.escapeDots(&data, label, expression, q.dotted[label]); err != nil {
			return "", err
		}
	}
	return expression, nil
}

// escapeDots renders again with the dots of a value escaped, if the template takes that value
// for a regular expression. One that takes it for other things, too, cannot be asked with a
// selector; objects are told apart by their labels in the answer, and no policy is about them.
func (b *binding) escapeDots(data *querytemplate.Query, label, expression string, selected bool) (string, error) {
	escaped := with(*data, "[.]", label)
	use, other := b.use(*data, escaped, label, expression)
	switch {
	case !use.Regexps:
		return expression, nil
	case !use.Others:
		data.LabelValuesByName = escaped.LabelValuesByName
		return other, nil
	case selected:
		return "", badRequest("the value %q of the label %q has a dot, and %s: metricsQuery may take it for any character: use <<.LabelMatchers>> there", data.LabelValuesByName[label], label, b.rule.path)
	}
	return expression, nil
}

// use says what the template takes the value of a label for, by what changes with it, and
// returns the expression with the value escaped. What cannot be told counts as everything.
func (b *binding) use(data, escaped querytemplate.Query, label, expression string) (use promql.Difference, other string) {
	unknown := promql.Difference{Regexps: true, Others: true}
	other, err := b.rule.renderFor(b.family.name, b.plain, escaped)
	if err == nil {
		if other == expression {
			return promql.Difference{}, other
		}
		if use, err = promql.Compare(expression, other); err != nil {
			return unknown, "" // another language
		}
		return use, other
	}
	// It is a number, such as a quantile, in which a digit does for a dot; or it is cut in two.
	digit, err := b.rule.renderFor(b.family.name, b.plain, with(data, "0", label))
	if err != nil {
		return unknown, ""
	}
	if use, err = promql.Compare(expression, digit); err != nil || use.Regexps {
		return unknown, ""
	}
	return use, ""
}

// with is what a template sees with something else for each dot in the values of labels.
func with(data querytemplate.Query, dot string, labels ...string) querytemplate.Query {
	data.LabelValuesByName = maps.Clone(data.LabelValuesByName)
	for _, label := range labels {
		data.LabelValuesByName[label] = strings.ReplaceAll(data.LabelValuesByName[label], ".", dot)
	}
	return data
}
