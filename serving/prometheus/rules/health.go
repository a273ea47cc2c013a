// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

// Reasons of a rule's health, and of a declared metric that is not in effect.
const (
	// ReasonInvalidSeriesQuery means that seriesQuery is not a series selector.
	ReasonInvalidSeriesQuery = "InvalidSeriesQuery"
	// ReasonInvalidSeriesFilter means that a filter has no regular expression, or several.
	ReasonInvalidSeriesFilter = "InvalidSeriesFilter"
	// ReasonInvalidName means that name yields no metric name, or one that the API
	// does not allow.
	ReasonInvalidName = v1alpha1.ReasonInvalidName
	// ReasonOmittedFromDiscovery means that there are more metrics than discovery lists.
	ReasonOmittedFromDiscovery = v1alpha1.ReasonOmittedFromDiscovery
	// ReasonInvalidResources means that resources associates no label with a resource.
	ReasonInvalidResources = "InvalidResources"
	// ReasonUnknownResource means that the cluster has no such resource now.
	ReasonUnknownResource = "UnknownResource"
	// ReasonInvalidMetricsQuery means that the template does not yield PromQL.
	ReasonInvalidMetricsQuery = "InvalidMetricsQuery"
	// ReasonUncheckedMetricsQuery means that the template yields a query that only the
	// source may understand.
	ReasonUncheckedMetricsQuery = "UncheckedMetricsQuery"
	// ReasonNeedsLabels means that the template yields a query only with certain selectors.
	ReasonNeedsLabels = "NeedsLabels"
	// ReasonIgnoresSelectors means that the query of an external metric does not use them.
	ReasonIgnoresSelectors = "IgnoresSelectors"
	// ReasonInvalidInterval means that the interval is not a duration, or out of range.
	ReasonInvalidInterval = "InvalidInterval"
	// ReasonInvalidMaxSampleAge means that the age is not a duration, or out of range, or that the times of
	// samples cannot be known of the query.
	ReasonInvalidMaxSampleAge = "InvalidMaxSampleAge"
	// ReasonInvalidDuplicates means that there is no such policy.
	ReasonInvalidDuplicates = "InvalidDuplicates"
	// ReasonInvalidValuesPolicy means that invalidValuesPolicy is no such policy.
	ReasonInvalidValuesPolicy = "InvalidValuesPolicy"
	// ReasonUnknownSource means that spec.sources has no such source.
	ReasonUnknownSource = "UnknownSource"
	// ReasonSeriesUnavailable means that the lookup of series fails.
	ReasonSeriesUnavailable = "SeriesUnavailable"
	// ReasonTooManySeries means that there are more series than are used.
	ReasonTooManySeries = "TooManySeries"
	// ReasonNoSeries means that no series matches seriesQuery and the filters now.
	ReasonNoSeries = "NoSeries"
	// ReasonNoNamespaceLabel means that series lack the namespace's label, by which the query selects.
	ReasonNoNamespaceLabel = "NoNamespaceLabel"
	// ReasonClusterScoped means that autoscalers cannot ask for the objects, which have no namespace.
	ReasonClusterScoped = "ClusterScoped"
	// ReasonNoObjects means that series match, but none of their labels names an object.
	ReasonNoObjects = "NoObjects"
	// ReasonCollision means that another rule or object defines the same metric, and wins.
	ReasonCollision = "Collision"
	// ReasonInvalidQuery means that a declared metric's query is not PromQL, or cannot be
	// confined to its namespace.
	ReasonInvalidQuery = "InvalidQuery"
	// ReasonInvalidWindow means that the window is not a duration.
	ReasonInvalidWindow = "InvalidWindow"
)

type problem struct {
	state           v1alpha1.RuleState
	reason, message string
}

// invalidf returns a problem that only a change of the spec resolves.
func invalidf(reason, format string, args ...any) *problem {
	return &problem{v1alpha1.RuleInvalid, reason, fmt.Sprintf(format, args...)}
}

// failingf returns a problem of a rule that has no metrics because of it, or a warning.
func failingf(failing bool, reason, format string, args ...any) *problem {
	if failing {
		return &problem{v1alpha1.RuleFailing, reason, fmt.Sprintf(format, args...)}
	}
	return warnf(reason, format, args...)
}

func warnf(reason, format string, args ...any) *problem {
	return &problem{v1alpha1.RuleWarning, reason, fmt.Sprintf(format, args...)}
}

func (p *problem) health(path string) v1alpha1.RuleHealth {
	const most = 1024 // as for a declared metric: names of series and labels may be long
	return v1alpha1.RuleHealth{Path: path, State: p.state, Reason: p.reason, Message: text.Truncate(p.message, most)}
}

// Health is the state of all rules.
type Health struct {
	// Rules holds the problems, in the order of the spec; none for a healthy rule.
	Rules []v1alpha1.RuleHealth
	// Count is the number of rules, and Failing that of rules without metrics because of an
	// error in them or of their source. Rules without series and rules overridden by others
	// do not fail.
	Count, Failing int
	// CustomMetrics and ExternalMetrics are the numbers of metrics.
	CustomMetrics, ExternalMetrics int
}

// Health returns the state of the rules.
func (c *Catalog) Health() Health {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.health
}

// updateHealth computes the state of the rules. c.changing is held.
func (c *Catalog) updateHealth() {
	h := Health{Count: len(c.rules)}
	unknown := map[bool]error{}
	collisions := c.metrics.collisions()
	for _, r := range c.rules {
		problems := slices.Clone(r.problems)
		if !r.failed() {
			f := c.discovered[r.selection()]
			problems = append(problems, c.activeProblems(r, f)...)
			if p := collisionProblem(collisions[r]); p != nil {
				problems = append(problems, p)
			}
			if n := c.omitted[r.path]; n > 0 {
				problems = append(problems, warnf(ReasonOmittedFromDiscovery, "%d metrics can be read, but are not listed in discovery, which has no room for all: select fewer series, or give shorter names", n))
			}
			if (f == nil || !f.known) && unknown[r.external] == nil {
				unknown[r.external] = notKnown(r, f)
			}
		}
		failing := false
		for _, p := range problems {
			failing = failing || p.state != v1alpha1.RuleWarning
			h.Rules = append(h.Rules, p.health(r.path))
		}
		if failing {
			h.Failing++
		}
	}
	for _, external := range []bool{false, true} {
		if n := c.omitted[partPath[external]]; n > 0 {
			h.Rules = append(h.Rules, warnf(ReasonOmittedFromDiscovery, "%d metrics that namespaces declare can be read, but are not listed in discovery, which has no room for all: declare fewer, or give shorter names", n).health(partPath[external]))
		}
	}
	h.CustomMetrics, h.ExternalMetrics = c.countMetrics(false), c.countMetrics(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health, c.healthRules, c.unknown = h, slices.Clone(c.rules), unknown
	c.cachedLists = nil
}

func notKnown(r *activeRule, f *discovered) error {
	if f != nil && f.err != nil {
		return fmt.Errorf("%s may make it, and its series are not known: %w", r.path, f.err)
	}
	return fmt.Errorf("%s may make it, and its series are not known yet", r.path)
}

// activeProblems returns the problems of a rule that was compiled.
func (c *Catalog) activeProblems(r *activeRule, f *discovered) []*problem {
	var problems []*problem
	if len(r.resolved.unknown) > 0 && !c.index.Empty() {
		none := len(r.resolved.resources) == 0 && r.resolved.template == nil && !r.external
		problems = append(problems, failingf(none, ReasonUnknownResource, "resources.overrides: the cluster has no resource %s: check group and resource; if it is installed later, it is found", firstFew(r.resolved.unknown)))
	}
	switch {
	case f != nil && f.err != nil:
		// The metrics of the last lookup stay.
		problems = append(problems, failingf(!f.known, ReasonSeriesUnavailable, "the series of seriesQuery could not be learnt: %v", f.err))
	case f == nil || !f.known:
	case len(r.bindings) == 0 && len(r.unassociated) > 0 && !c.index.Empty() && len(r.resolved.unknown) == 0:
		name := first(r.unassociated)
		problems = append(problems, warnf(ReasonNoObjects, "%d series match, but no label of theirs names a resource of the cluster: %s has the labels %s; name one in resources.overrides", len(r.unassociated), name, r.unassociated[name]))
	case len(r.bindings) == 0 && len(r.unassociated) == 0 && len(r.invalidNames) == 0:
		problems = append(problems, warnf(ReasonNoSeries, "no series match now: try seriesQuery at the source%s, and see whether seriesFilters and name.matches leave any", r.source.requestHint()))
	}
	if p := r.unreadable(); p != nil {
		problems = append(problems, p)
	}
	if f != nil && f.truncated {
		problems = append(problems, warnf(ReasonTooManySeries, "seriesQuery selects more than %d kinds of series, or more series than can be read in a minute, and the others make no metrics: select fewer, in several rules", series.MaxSeries))
	}
	if len(r.invalidNames) > 0 {
		name := first(r.invalidNames)
		problems = append(problems, failingf(len(r.bindings) == 0, ReasonInvalidName, "%d series make no metric: for %s %s", len(r.invalidNames), quoteName(name), r.invalidNames[name]))
	}
	return problems
}

// unreadable returns a warning about metrics whose requests by autoscalers fail, or find nothing, for
// ever; nil if there are none.
func (r *activeRule) unreadable() *problem {
	// Of several series the first by name are shown, so that the message stays.
	var unlabeled, clusterScoped *binding
	readable := false
	for _, bindings := range r.bindings {
		for _, b := range bindings {
			first := &clusterScoped
			switch _, has := slices.BinarySearch(b.family.labels, b.namespaceLabel); {
			case !r.external && !b.metric.Namespaced:
				if name := b.metric.Resource.String(); name == "namespaces" || name == "nodes" {
					continue
				}
			case has:
				readable = true
				continue
			default:
				first = &unlabeled
			}
			if *first == nil || b.family.name < (*first).family.name {
				*first = b
			}
		}
	}
	switch b := unlabeled; {
	case b != nil && b.selectsNamespace():
		remedy := "name"
		if r.external {
			remedy = "set resources.namespaced: false, name"
		}
		return warnf(ReasonNoNamespaceLabel, "series lack the label %q, %s for one, and metricsQuery selects by it, so that it finds none of them: %s the label of the namespace in resources.overrides, or add it to these series",
			b.namespaceLabel, quoteName(b.family.name), remedy)
	case b == nil && !readable && clusterScoped != nil:
		return warnf(ReasonClusterScoped, "autoscalers cannot read the metric %s of %s: these are in no namespace, and an autoscaler asks for objects of its own; make it in spec.externalMetrics.rules with resources.namespaced: false",
			quoteName(clusterScoped.metric.Name), clusterScoped.metric.Resource)
	}
	return nil
}

// selectsNamespace reports whether the query selects the series by the label of the namespace.
func (b *binding) selectsNamespace() bool {
	const namespace = "default"
	mq, err := externalQuery(b, namespace, nil)
	if !b.rule.external {
		mq, err = b.metricQuery(namespace, nil, nil)
	}
	return err == nil && promql.Selects(mq.Query.Expression, b.family.name, promql.Equal(b.namespaceLabel, namespace))
}

// collisionProblem returns the warning about metrics of a rule that another rule defines too,
// or that the rule defines for several series; nil if there are none.
func collisionProblem(of []collision) *problem {
	if len(of) == 0 {
		return nil
	}
	shown := describeCollision(of[0].loser, of[0].winner)
	if len(of) > 1 {
		shown += fmt.Sprintf(" (and %d more)", len(of)-1)
	}
	return warnf(ReasonCollision, "%s: select other series, or give one of them another name", shown)
}

func describeCollision(b, winner *binding) string {
	metric := b.metric.Name
	if !b.rule.external {
		metric = b.metric.Resource.String() + "/" + metric
	}
	if b.metric.Name != winner.metric.Name {
		read := strings.ToLower(metric)
		if read != metric && read != winner.metric.Name {
			read = "neither"
		}
		return fmt.Sprintf("the metric %s differs in case alone from %s of %s, and autoscalers, which ask in lower case, read %s", metric, winner.metric.Name, winner.rule.path, read)
	}
	if winner.rule == b.rule {
		return fmt.Sprintf("the metric %s is made of %s and of %s, of which the latter counts", metric, b.family.name, winner.family.name)
	}
	return fmt.Sprintf("the metric %s is also made by %s, which counts as the later one", metric, winner.rule.path)
}

func first(m map[string]string) string { return slices.Min(slices.Collect(maps.Keys(m))) }

// quoteName returns a name for a message, quoted unless it is plain: scraped workloads choose it.
func quoteName(name string) string {
	name = text.Truncate(name, 100)
	if promql.PlainName(name) {
		return name
	}
	return strconv.Quote(name)
}

// firstFew formats the first few of many names.
func firstFew(all []string) string {
	const most = 5
	if len(all) <= most {
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("%v and %d more", all[:most], len(all)-most)
}
