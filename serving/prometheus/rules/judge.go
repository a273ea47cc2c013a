// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

// Health returns how the rules do.
func (c *Catalogue) Health() Health {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.health
}

// judge says how the rules do now. c.changing is held.
func (c *Catalogue) judge() {
	h := Health{Count: len(c.rules)}
	unknown := map[bool]error{}
	collisions := c.made.collisions()
	for _, r := range c.rules {
		problems := slices.Clone(r.problems)
		if !r.failed() {
			f := c.found[r.selection()]
			problems = append(problems, c.judgeLive(r, f)...)
			if p := collisionProblem(collisions[r]); p != nil {
				problems = append(problems, p)
			}
			if f == nil || !f.known {
				if unknown[r.external] == nil { // one is enough to say
					unknown[r.external] = notKnown(r, f)
				}
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
	h.CustomMetrics, h.ExternalMetrics = c.count()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health, c.judged = h, slices.Clone(c.rules)
	c.unknownCustom, c.unknownExternal = unknown[false], unknown[true]
	c.listed = nil
}

func notKnown(r *live, f *found) error {
	if f != nil && f.err != nil {
		return fmt.Errorf("%s: the series are not known: %w", r.path, f.err)
	}
	return fmt.Errorf("%s: the series are not known yet", r.path)
}

// judgeLive says what is wrong with a rule that was compiled.
func (c *Catalogue) judgeLive(r *live, f *found) []*problem {
	var problems []*problem
	if len(r.resolved.unknown) > 0 && !c.index.Empty() {
		none := len(r.resolved.resources) == 0 && r.resolved.template == nil && !r.external
		problems = append(problems, failingf(none, ReasonUnknownResource, "resources.overrides: the cluster has no resource %s: check group and resource; if it is installed later, it is found", listed(r.resolved.unknown)))
	}
	switch {
	case f != nil && f.err != nil:
		// The metrics of the last answer stay.
		problems = append(problems, failingf(!f.known, ReasonSeriesUnavailable, "the series of seriesQuery could not be learnt: %v", f.err))
	case f == nil || !f.known:
	case len(r.made) == 0 && len(r.homeless) > 0 && !c.index.Empty() && len(r.resolved.unknown) == 0:
		name := first(r.homeless)
		problems = append(problems, warnf(ReasonNoObjects, "%d series match, but no label of theirs names a resource of the cluster: %s has the labels %s; name one in resources.overrides", len(r.homeless), name, r.homeless[name]))
	case len(r.made) == 0 && len(r.homeless) == 0 && len(r.misnamed) == 0:
		problems = append(problems, warnf(ReasonNoSeries, "no series match now: try seriesQuery at the source, and see whether seriesFilters and name.matches leave any"))
	}
	if f != nil && f.cut {
		problems = append(problems, warnf(ReasonTooManySeries, "seriesQuery selects more than %d kinds of series, or more series than can be read in a minute, and the others make no metrics: select fewer, in several rules", series.MaxSeries))
	}
	if len(r.misnamed) > 0 {
		name := first(r.misnamed)
		problems = append(problems, failingf(len(r.made) == 0, ReasonInvalidName, "%d series make no metric: for %s %s", len(r.misnamed), printed(name), r.misnamed[name]))
	}
	return problems
}

// collisionProblem tells of the metrics of a rule that another rule makes too, and of
// those that it makes of several series.
func collisionProblem(of []collision) *problem {
	if len(of) == 0 {
		return nil
	}
	shown := describe(of[0].loser, of[0].winner)
	if len(of) > 1 {
		shown += fmt.Sprintf(" (and %d more)", len(of)-1)
	}
	return warnf(ReasonCollision, "%s: select other series, or give another name", shown)
}

func describe(b, winner *binding) string {
	metric := b.metric.Name
	if !b.rule.external {
		metric = b.metric.Resource.String() + "/" + metric
	}
	if winner.rule == b.rule {
		return fmt.Sprintf("the metric %s is made of %s and of %s, of which the latter counts", metric, b.family.name, winner.family.name)
	}
	return fmt.Sprintf("the metric %s is also made by %s, which counts as the later one", metric, winner.rule.path)
}

func first(m map[string]string) string {
	return slices.Min(slices.Collect(maps.Keys(m)))
}

// printed is a series' name as a message has it: whoever is scraped chooses it.
func printed(name string) string {
	name = text.Truncate(name, 100)
	if promql.PlainName(name) {
		return name
	}
	return strconv.Quote(name)
}

// listed are the first few of many.
func listed(all []string) string {
	const most = 5
	if len(all) <= most {
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("%v and %d more", all[:most], len(all)-most)
}
