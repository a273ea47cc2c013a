// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
)

// defaultMetricsQuery is for rules without metricsQuery. It yields one value per object.
const defaultMetricsQuery = `sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)`

// sampleSeries is a series name that occurs nowhere else in a query.
const sampleSeries = "metricsbackend_sample_series_total"

// expression is a query that a template makes.
type expression struct {
	text string
	// window is the longest range over which it looks back; zero if it cannot be parsed here.
	window time.Duration
}

// compileQuery parses the template of the query and checks it with a sample.
func (r *rule) compileQuery() []*problem {
	text := r.spec.MetricsQuery
	if strings.TrimSpace(text) == "" {
		text = defaultMetricsQuery
	}
	tmpl, err := querytemplate.Parse("metricsQuery", text)
	if err != nil {
		return []*problem{invalidf(ReasonInvalidMetricsQuery, "metricsQuery is not a template: %v", err)}
	}
	r.query = tmpl
	r.series = promql.MetricName(r.selector)
	series := r.series
	if !promql.PlainName(series) {
		series = "http_server_requests_seconds_total"
	}
	r.sample = querytemplate.Query{
		Series:            series,
		LabelMatchers:     `namespace="default",pod="web-5d4f8c7b9d-x2x7q"`,
		LabelValuesByName: map[string]string{"namespace": "default", "pod": "web-5d4f8c7b9d-x2x7q"},
	}
	if !r.external {
		r.sample.GroupBy, r.sample.GroupBySlice = "pod", []string{"pod"}
	}
	e, problems := r.try()
	other := r.sample
	other.Series = sampleSeries
	renamed, err := r.render(other)
	r.usesSeries = err != nil || renamed != e
	if p := r.checkSelects(e); p != nil {
		problems = append(problems, p)
	}
	if r.maxSampleAge > 0 && e.text != "" {
		if _, known := promql.WithSampleTimes(e.text, true); !known {
			problems = append(problems, invalidf(ReasonInvalidMaxSampleAge, "maxSampleAge needs the times of the samples, which cannot be known of metricsQuery: each selector needs a metric's name, and the query no absent, scalar, count_values, subquery, group_left or group_right"))
		}
	}
	return problems
}

// try renders the query of the sample, with more labels if the template needs them.
func (r *rule) try() (expression, []*problem) {
	samples := []querytemplate.Query{r.sample}
	more, labels := r.moreLabels()
	if len(labels) > 0 {
		samples = append(samples, more)
	}
	var failure error
	for i, sample := range samples {
		e, err := r.render(sample)
		if err != nil {
			failure = err
			continue
		}
		if r.sample = sample; i > 0 {
			r.needsLabels = true
			return e, []*problem{warnf(ReasonNeedsLabels, "metricsQuery makes PromQL only with values of labels that it names (of %s): requests whose selector does not have them are refused: set them in an autoscaler's metric.selector.matchLabels", firstFew(labels))}
		}
		if !r.external || r.namespaced {
			return e, nil
		}
		sample.LabelMatchers, sample.LabelValuesByName = "", nil
		if _, err := r.render(sample); err != nil {
			r.needsLabels = true
			return e, []*problem{warnf(ReasonNeedsLabels, "metricsQuery makes PromQL only with a selector: write <<.Series>> or a matcher into it, or set metric.selector.matchLabels in each autoscaler: %v", err)}
		}
		return e, nil
	}
	r.unchecked = true
	for _, sample := range samples {
		if e, err := r.render(sample); err == nil {
			r.sample = sample
			return e, []*problem{warnf(ReasonUncheckedMetricsQuery, "metricsQuery cannot be checked here, and is asked as it is, as this version of PromQL does not know it: correct it, unless the source speaks another one: %v", failure)}
		}
	}
	r.unchecked = false
	return expression{}, []*problem{invalidf(ReasonInvalidMetricsQuery, "metricsQuery does not make PromQL: %v", failure)}
}

// moreLabels returns the sample with a value for each label that the template may use, and
// those labels.
func (r *rule) moreLabels() (querytemplate.Query, []string) {
	more := r.sample
	more.LabelValuesByName = maps.Clone(more.LabelValuesByName)
	var labels []string
	for _, word := range r.query.Words() {
		_, known := more.LabelValuesByName[word]
		if known || fields[word] || !model.LegacyValidation.IsValidLabelName(word) {
			continue
		}
		labels = append(labels, word)
		more.LabelValuesByName[word] = "1" // valid as a number, a duration and a label's value
		more.LabelMatchers += "," + promql.Equal(word, "1").String()
	}
	return more, labels
}

// fields are those of the template's data; they are not labels.
var fields = map[string]bool{"Series": true, "LabelMatchers": true, "LabelValuesByName": true, "GroupBy": true, "GroupBySlice": true}

// checkSelects returns a warning if an external rule ignores the client's selector, which policies
// about labels rely on.
func (r *rule) checkSelects(sample expression) *problem {
	if !r.external || sample.text == "" {
		return nil
	}
	selected := r.sample
	selected.LabelMatchers += `,metricsbackend_sample_label="1"`
	selected.LabelValuesByName = maps.Clone(selected.LabelValuesByName)
	selected.LabelValuesByName["metricsbackend_sample_label"] = "1"
	if other, err := r.render(selected); err != nil || other != sample {
		return nil
	}
	return warnf(ReasonIgnoresSelectors, "metricsQuery leaves <<.LabelMatchers>> out, so it asks for the same whatever a client selects: values are then selected by the labels that they still have, and those without are answered to everybody; add <<.LabelMatchers>>")
}

// render renders the rule's query, and parses it unless the rule is unchecked.
func (r *rule) render(data querytemplate.Query) (expression, error) {
	e, err := render(r.query, data)
	if unknown := (*promql.SyntaxError)(nil); r.unchecked && errors.As(err, &unknown) {
		return e, nil
	}
	if err != nil {
		return expression{}, err
	}
	return e, nil
}

// renderFor renders the rule's query for a series. A name that is not plain must occur in the
// query as a name only, or not at all: otherwise a scraped workload could write parts of the
// administrator's query.
func (r *rule) renderFor(name string, plain bool, data querytemplate.Query) (expression, error) {
	data.Series = name
	e, err := r.render(data)
	if plain {
		return e, err
	}
	if err == nil {
		data.Series = sampleSeries
		var sample expression
		if sample, err = r.render(data); err != nil {
			return expression{}, err
		}
		if promql.SameButName(sample.text, sampleSeries, e.text, name) {
			return e, nil
		}
	}
	return expression{}, fmt.Errorf("its name cannot be put into a query as it is: names have letters, digits, _ and : only; write another rule for it with the quoted name in place of <<.Series>>, such as {\"http.requests\",<<.LabelMatchers>>}, and a name.as")
}

// execute returns the text of a template. An empty list of matchers or labels leaves no commas.
func execute(t *querytemplate.Template, data querytemplate.Query) (string, error) {
	text, err := t.Execute(data)
	if text = strings.TrimSpace(text); data.LabelMatchers == "" || data.GroupBy == "" {
		text = promql.OmitEmptyItems(text)
	}
	return text, err
}

// render returns the expression of a template, also with an error of the parser.
func render(t *querytemplate.Template, data querytemplate.Query) (expression, error) {
	rendered, err := execute(t, data)
	if err != nil {
		return expression{}, err
	}
	parsed, err := promql.Parse(rendered)
	if err != nil {
		return expression{text: rendered}, fmt.Errorf("%w, in %s", err, text.Truncate(rendered, 200))
	}
	return expression{rendered, promql.Window(parsed)}, nil
}
