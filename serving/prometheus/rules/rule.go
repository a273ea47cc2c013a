// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// rule is a compiled rule. It is immutable, except for queryProblems.
type rule struct {
	// path in the MetricsBackend, and position in its list: of rules with the same metric the
	// last one wins.
	path     string
	position int
	spec     v1alpha1.MetricRule
	// external rules define metrics that describe no object.
	external bool
	source   *source
	interval time.Duration
	// maxSampleAge is zero for any.
	maxSampleAge time.Duration
	// selector is seriesQuery without surrounding space.
	selector string
	// series is the name that selector requires; empty for none.
	series  string
	filters []filter
	naming  naming
	assoc   *association
	query   *querytemplate.Template
	// namespaced reports, for external rules, whether the query is for the namespace of the request.
	namespaced bool
	duplicates v1alpha1.DuplicatesPolicy
	// usesSeries is set if the query depends on the name of the series.
	usesSeries bool
	// sample is the input with which the query was checked.
	sample querytemplate.Query
	// unchecked is set if the query is not PromQL as this version knows it, and is not parsed.
	unchecked bool
	// needsLabels is set if the query can be rendered only with a selector.
	needsLabels bool
	problems    []*problem
	// queryProblems tracks what its queries did not return.
	queryProblems query.ProblemTracker
}

func (r *rule) failed() bool {
	return slices.ContainsFunc(r.problems, func(p *problem) bool { return p.state == v1alpha1.RuleInvalid })
}

// compile compiles a rule. Errors are in its problems, each with what to do.
func compile(spec v1alpha1.MetricRule, path string, position int, external bool, sources sources) *rule {
	r := &rule{
		path: path, position: position, spec: *spec.DeepCopy(), external: external,
		selector:   strings.TrimSpace(spec.SeriesQuery),
		namespaced: spec.Resources.Namespaced == nil || *spec.Resources.Namespaced,
		duplicates: cmp.Or(spec.DuplicatesPolicy, v1alpha1.DuplicatesReject),
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
			note(invalidf(ReasonInvalidInterval, "interval %v", err))
		}
	}
	var err error
	if r.maxSampleAge, err = spec.MaxSampleAge.Duration(0); err != nil {
		note(invalidf(ReasonInvalidMaxSampleAge, "maxSampleAge %v", err))
	}
	if !spec.DuplicatesPolicy.Known() {
		note(invalidf(ReasonInvalidDuplicates, "duplicatesPolicy is %q: it must be Reject, Sum, Average, Minimum or Maximum", spec.DuplicatesPolicy))
	}
	if err := spec.InvalidValuesPolicy.Validate(); err != nil {
		note(invalidf(ReasonInvalidValuesPolicy, "%v", err))
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

// filter selects series by their name.
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

// matches reports whether all filters of the rule select a series name.
func (r *rule) matches(series string) bool {
	return !slices.ContainsFunc(r.filters, func(f filter) bool { return f.pattern.MatchString(series) != f.positive })
}

// naming derives the name of a metric from that of its series.
type naming struct {
	matches *regexp.Regexp
	as      string
}

var everything = regexp.MustCompile(`.*`)

func compileNaming(spec v1alpha1.RuleName) (naming, *problem) {
	n := naming{matches: everything, as: spec.As}
	if spec.Matches != "" {
		matches, err := regexp.Compile(spec.Matches)
		if err != nil {
			return naming{}, invalidf(ReasonInvalidName, "name.matches is not a regular expression (RE2): %v", err)
		}
		n.matches = matches
	}
	if n.as == "" {
		switch n.matches.NumSubexp() {
		case 0:
			n.as = "$0"
		case 1:
			n.as = "$1"
		default:
			return naming{}, invalidf(ReasonInvalidName, "name.matches has %d groups: say in name.as what the name is made of, such as ${1}_per_second", n.matches.NumSubexp())
		}
		return n, nil
	}
	for _, ref := range references(n.as) {
		if !slices.Contains(n.matches.SubexpNames(), ref) && !isGroup(ref, n.matches.NumSubexp()) {
			return n, warnf(ReasonInvalidName, "name.as refers to $%s, which name.matches does not have, so it is left out: write braces around the group, such as ${1}_per_second", ref)
		}
	}
	return n, nil
}

// reference matches references to groups as regexp.Expand does.
var reference = regexp.MustCompile(`\$(?:\$|([0-9A-Za-z_]+)|\{([0-9A-Za-z_]+)\})`)

func references(as string) []string {
	var refs []string
	for _, m := range reference.FindAllStringSubmatch(as, -1) {
		if ref := m[1] + m[2]; ref != "" {
			refs = append(refs, ref)
		}
	}
	return refs
}

func isGroup(ref string, groups int) bool {
	i, err := strconv.Atoi(ref)
	return err == nil && i >= 0 && i <= groups
}

// name returns the metric's name for a series; false if name.matches does not match it.
func (n naming) name(series string) (string, bool) {
	if n.matches == everything && n.as == "$0" {
		return series, true
	}
	match := n.matches.FindStringSubmatchIndex(series)
	if match == nil {
		return "", false
	}
	return string(n.matches.ExpandString(nil, n.as, series, match)), true
}

// maxMetricName is the maximum length of a metric's name in characters, as in the schema of
// metricName.
const maxMetricName = 253

// checkMetricName returns an error unless a metric can be requested by a name. It must be one
// segment of a path (Custom Metrics API proposal, "Metric Names"); clients escape slashes in
// those of external metrics, which therefore cannot contain the escape.
func checkMetricName(name string, external bool) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is empty")
	case utf8.RuneCountInString(name) > maxMetricName:
		return fmt.Errorf("%s is longer than %d characters", quoteName(name), maxMetricName)
	case strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f || c == utf8.RuneError }):
		return fmt.Errorf("%s has white space or a control character", quoteName(name))
	case strings.EqualFold(name, v1alpha1.NoMetrics):
		return fmt.Errorf("%q is reserved for discovery while there are no metrics: choose another name", name)
	case name == "." || name == "..":
		return fmt.Errorf("%q cannot be a part of a path", name)
	case strings.ContainsAny(name, "%?") || !external && strings.Contains(name, "/"):
		return fmt.Errorf("%q has a character that a metric's name cannot have: one of %%, / and ?", name)
	case external && strings.Contains(name, `\|`):
		return fmt.Errorf(`%s has \|, which is how clients write a slash: write the slash itself here`, name)
	}
	return nil
}
