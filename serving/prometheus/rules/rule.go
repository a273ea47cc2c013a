// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// rule is a compiled rule. It is immutable, except for queryProblems.
type rule struct {
	// path in the MetricsBackend, and place in order: of rules that make the same
	// metric the one with the highest place counts.
	path  string
	place int
	spec  v1alpha1.MetricRule
	// external rules make metrics that describe no object.
	external bool
	source   *source
	interval time.Duration
	// selector is seriesQuery, without the space around it.
	selector string
	filters  []filter
	naming   naming
	assoc    *association
	query    *querytemplate.Template
	// namespaced is for external rules: the query is about the namespace of the request.
	namespaced bool
	duplicates query.Duplicates
	// usesSeries says that queries differ by series; otherwise it does not matter of
	// which series a metric is made.
	usesSeries bool
	// sample is what the query was tried with.
	sample querytemplate.Query
	// unchecked says that the query is not parsed: its language is the server's alone.
	unchecked bool
	// needsLabels says that the query can be asked only with a selector.
	needsLabels bool
	problems    []*problem
	// queryProblems tracks what its queries did not return.
	queryProblems query.ProblemTracker
}

func (r *rule) failed() bool {
	for _, p := range r.problems {
		if p.state == v1alpha1.RuleInvalid {
			return true
		}
	}
	return false
}

// compile makes a rule of its spec. Everything that is wrong is in its problems, each
// of which says what to do.
func compile(spec v1alpha1.MetricRule, path string, place int, external bool, sources *sources) *rule {
	r := &rule{
		path: path, place: place, spec: *spec.DeepCopy(), external: external,
		selector:   strings.TrimSpace(spec.SeriesQuery),
		namespaced: spec.Resources.Namespaced == nil || *spec.Resources.Namespaced,
		duplicates: query.DuplicatesReject,
	}
	var p *problem
	note := func(p *problem) {
		if p != nil {
			r.problems = append(r.problems, p)
		}
	}
	r.source, p = sources.find(spec.Source)
	note(p)
	if r.source != nil {
		var err error
		if r.interval, err = spec.Interval.Duration(r.source.interval); err != nil {
			note(invalidf(ReasonInvalidInterval, "%v", err))
		}
	}
	switch {
	case !spec.Duplicates.Known():
		note(invalidf(ReasonInvalidDuplicates, "duplicates is %q: it must be Reject, Sum, Average, Minimum or Maximum", spec.Duplicates))
	case spec.Duplicates != "":
		r.duplicates = query.Duplicates(spec.Duplicates)
	}
	if r.selector == "" {
		note(invalidf(ReasonInvalidSeriesQuery, "seriesQuery is empty: write a selector such as http_requests_total{namespace!=\"\"}"))
	} else if err := promql.CheckSelector(r.selector); err != nil {
		note(invalidf(ReasonInvalidSeriesQuery, "seriesQuery is not a selector of series: %v", err))
	}
	r.filters, p = compileFilters(spec.SeriesFilters)
	note(p)
	r.naming, p = compileNaming(spec.Name)
	note(p)
	r.assoc, p = compileAssociation(spec.Resources)
	note(p)
	if !external && r.assoc.empty() && p == nil {
		note(invalidf(ReasonInvalidResources, "resources says of no label what it names: set resources.template, or resources.overrides such as {pod: {resource: pod}, namespace: {resource: namespace}}"))
	}
	r.problems = append(r.problems, r.compileQuery()...)
	return r
}

// filter keeps series by their name.
type filter struct {
	pattern  *regexp.Regexp
	positive bool
}

func compileFilters(specs []v1alpha1.SeriesFilter) ([]filter, *problem) {
	filters := make([]filter, 0, len(specs))
	for i, spec := range specs {
		if (spec.Is == "") == (spec.IsNot == "") {
			return nil, invalidf(ReasonInvalidSeriesFilter, "seriesFilters[%d] has both or none of is and isNot: give exactly one, and write another filter for the other", i)
		}
		pattern, err := regexp.Compile(spec.Is + spec.IsNot)
		if err != nil {
			return nil, invalidf(ReasonInvalidSeriesFilter, "seriesFilters[%d] is not a regular expression (RE2): %v", i, err)
		}
		filters = append(filters, filter{pattern, spec.Is != ""})
	}
	return filters, nil
}

// keeps says whether a rule is about series of a name.
func (r *rule) keeps(series string) bool {
	for _, f := range r.filters {
		if f.pattern.MatchString(series) != f.positive {
			return false
		}
	}
	return true
}
