// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package routes decides which implementation answers a request for a custom or external metric: the rules and
// declared metrics of the MetricsBackend, or a source that is another implementation (package metricsapi).
package routes

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/regexpsize"
)

// Reasons of a route's health.
const (
	// ReasonInvalidRoute means that the route cannot match anything.
	ReasonInvalidRoute = "InvalidRoute"
	// ReasonUnknownSource means that spec.sources has no such implementation of the API group.
	ReasonUnknownSource = "UnknownSource"
	// ReasonUnreachable means that an earlier route matches all that the route would.
	ReasonUnreachable = "Unreachable"
)

// maxInstructions limits the compiled regular expression of a route: 100 routes take a few megabytes.
const maxInstructions = 2000

// request is what routes decide about.
type request struct {
	namespace, metric string
	// series selects among the series of the metric; may be nil.
	series labels.Selector
}

// route is a route of the spec.
type route struct {
	path string
	// source answers, or the rules and declared metrics if it is empty.
	source string
	match  v1alpha1.RouteMatch
	// anyCase says that names of metrics match in any case; then names are in lower case.
	anyCase           bool
	names, namespaces sets.Set[string]
	regexp            *regexp.Regexp
	// problem is why the route matches nothing, or is of no use; nil if it is neither.
	problem *v1alpha1.RuleHealth
	// collision is guarded by the Router's mu.
	collision collision
}

// newRoutes returns the routes of a section with a path, the one of the rules and declared metrics included.
func newRoutes(specs []v1alpha1.MetricRoute, path string, group v1alpha1.MetricsAPIGroup, sources []v1alpha1.SourceSpec) []*route {
	var all []*route
	if !slices.ContainsFunc(specs, func(s v1alpha1.MetricRoute) bool { return s.Own != nil }) {
		all = append(all, &route{path: path})
	}
	for i := range specs {
		r := &route{path: fmt.Sprintf("%s.routes[%d]", path, i), match: specs[i].Match, anyCase: group == v1alpha1.ExternalMetricsGroup}
		if specs[i].Own == nil {
			r.source = specs[i].Source
		}
		if reason, err := r.compile(&specs[i], group, sources); err != nil {
			r.problem = &v1alpha1.RuleHealth{Path: r.path, State: v1alpha1.RuleInvalid, Reason: reason, Message: err.Error()}
		} else if at := slices.IndexFunc(all, func(o *route) bool { return o.covers(r) }); at >= 0 {
			r.problem = &v1alpha1.RuleHealth{Path: r.path, State: v1alpha1.RuleWarning, Reason: ReasonUnreachable, Message: fmt.Sprintf(
				"no request comes to this route, since %s matches all that it would: put it before that one, or remove it", all[at].path)}
		}
		all = append(all, r)
	}
	return all
}

// compile prepares the route, or returns why it cannot match anything.
func (r *route) compile(spec *v1alpha1.MetricRoute, group v1alpha1.MetricsAPIGroup, sources []v1alpha1.SourceSpec) (reason string, err error) {
	m := &spec.Match
	switch at := slices.IndexFunc(sources, func(s v1alpha1.SourceSpec) bool { return s.Name == spec.Source }); {
	case spec.Own != nil:
	case at < 0:
		return ReasonUnknownSource, fmt.Errorf("spec.sources has no %q: add it, or name another one", spec.Source)
	case sources[at].MetricsAPI == nil || sources[at].MetricsAPI.Group != group:
		return ReasonUnknownSource, fmt.Errorf("the source %q is not another implementation of %s (metricsAPI with this group): name one that is; rules and declared metrics read from other sources", spec.Source, group)
	}
	if len(m.Metrics) > 0 {
		r.names = sets.New[string]()
		for _, name := range m.Metrics {
			r.names.Insert(r.fold(name))
		}
	}
	if len(m.Namespaces) > 0 {
		r.namespaces = sets.New(m.Namespaces...)
	}
	if pattern := m.MetricRegexp; pattern != "" {
		if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
			return ReasonInvalidRoute, fmt.Errorf("metricRegexp: %w", err)
		}
		if r.anyCase {
			pattern = "(?i)" + pattern
		}
		size := regexpsize.Size{Limit: maxInstructions}
		if _, err := size.Add(pattern); err != nil {
			return ReasonInvalidRoute, fmt.Errorf("metricRegexp: %w", err)
		}
		if r.regexp, err = regexp.Compile(pattern); err != nil {
			return ReasonInvalidRoute, fmt.Errorf("metricRegexp: %w", err)
		}
		r.regexp.Longest()
	}
	return "", nil
}

func (r *route) fold(metric string) string {
	if r.anyCase {
		return strings.ToLower(metric)
	}
	return metric
}

func (r *route) invalid() bool { return r.problem != nil && r.problem.State == v1alpha1.RuleInvalid }

// matches reports whether the route is for a request, if nothing before it is. An invalid one matches nothing, but that
// of own metrics any request: another implementation must not answer for them by mistake.
func (r *route) matches(q request) bool {
	if r.invalid() {
		return r.source == ""
	}
	return r.matchesName(q.metric) && (r.namespaces == nil || r.namespaces.Has(q.namespace)) && r.matchesSelector(q.series)
}

func (r *route) matchesName(metric string) bool {
	return (r.names == nil || r.names.Has(r.fold(metric))) && v1alpha1.MatchesWhole(r.regexp, metric)
}

// matchesSelector reports whether a selector requires what the route demands.
func (r *route) matchesSelector(s labels.Selector) bool {
	want := r.match.Selector
	if want == nil {
		return true
	}
	if s == nil {
		return false
	}
	requirements, _ := s.Requirements()
	return slices.ContainsFunc(requirements, func(q labels.Requirement) bool {
		if q.Key() != want.Key || len(want.Values) == 0 {
			return q.Key() == want.Key
		}
		switch q.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			return sets.New(want.Values...).HasAll(q.ValuesUnsorted()...)
		}
		return false
	})
}

// covers reports whether the route matches all requests that another one matches. That of the rules and declared
// metrics depends on what they define, so it is not known to.
func (r *route) covers(o *route) bool {
	if r.source == "" || r.invalid() {
		return false
	}
	names := r.names == nil && r.regexp == nil ||
		r.regexp != nil && r.match.MetricRegexp == o.match.MetricRegexp ||
		o.names != nil && !slices.ContainsFunc(o.names.UnsortedList(), func(name string) bool { return !r.matchesName(name) })
	namespaces := r.namespaces == nil || o.namespaces != nil && r.namespaces.IsSuperset(o.namespaces)
	a, b := r.match.Selector, o.match.Selector
	selector := a == nil || b != nil && a.Key == b.Key && (len(a.Values) == 0 || len(b.Values) > 0 && sets.New(a.Values...).HasAll(b.Values...))
	return names && namespaces && selector
}
