// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// lists are the first metrics that exist. They are immutable.
type lists struct {
	most     int
	custom   []query.ObjectMetric
	external []string
}

// ObjectMetrics implements query.ObjectMetrics. The slice is shared, and the same one
// until metrics change.
func (c *Catalogue) ObjectMetrics(most int) (first []query.ObjectMetric, total int) {
	l, h := c.lists(most)
	return l.custom, h.CustomMetrics
}

// ExternalMetrics implements query.ExternalMetrics. The slice is shared as well.
func (c *Catalogue) ExternalMetrics(most int) (first []string, total int) {
	l, h := c.lists(most)
	return l.external, h.ExternalMetrics
}

// lists holds up changes while it looks through all metrics, and no request: c.made and
// the declared metrics are written by changes alone, so they can be read without c.mu.
// Requests would queue behind a writer that waits for a reader.
func (c *Catalogue) lists(most int) (*lists, Health) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.listed != nil && c.listed.most == most {
		return c.listed, c.health
	}
	custom := firstOf(maps.Keys(c.made.custom), most, metricKey.compare)
	external := firstOf(maps.Keys(c.made.external), most, strings.Compare)
	// What teams declare comes after all rules: whatever they write, it cannot take the
	// place of what the administrator wrote.
	declaredCustom, declaredExternal := c.onlyDeclared()
	l := &lists{most: most, external: slices.Concat(external, firstOf(maps.Keys(declaredExternal), most-len(external), strings.Compare))}
	for _, key := range custom {
		l.custom = append(l.custom, newest(c.made.custom[key]).metric)
	}
	for _, key := range firstOf(maps.Keys(declaredCustom), most-len(custom), metricKey.compare) {
		l.custom = append(l.custom, declaredCustom[key])
	}
	c.listed = l
	return l, c.health
}

// onlyDeclared returns the metrics that teams declare and no rule makes, those of all
// namespaces by their name. c.changing is held.
func (c *Catalogue) onlyDeclared() (custom map[metricKey]query.ObjectMetric, external map[string]bool) {
	custom, external = map[metricKey]query.ObjectMetric{}, map[string]bool{}
	for key, d := range c.declaredCustom {
		if len(c.made.custom[key.metricKey]) == 0 {
			custom[key.metricKey] = d.metric
		}
	}
	for key := range c.declaredExternal {
		if len(c.made.external[key.Name]) == 0 {
			external[key.Name] = true
		}
	}
	return custom, external
}

// count counts the metrics that exist. c.changing is held.
func (c *Catalogue) count() (custom, external int) {
	declaredCustom, declaredExternal := c.onlyDeclared()
	return len(c.made.custom) + len(declaredCustom), len(c.made.external) + len(declaredExternal)
}

// firstOf returns the first of all, in order. It sorts at most twice as many at a time:
// there may be a million, of which few are told.
func firstOf[K any](all iter.Seq[K], most int, compare func(a, b K) int) []K {
	if most <= 0 {
		return nil
	}
	var first []K
	cut := false
	for key := range all {
		if cut && compare(key, first[most-1]) >= 0 {
			continue // the first that were kept are in order, and before this one
		}
		if first = append(first, key); len(first)-most >= most {
			slices.SortFunc(first, compare)
			first, cut = first[:most], true
		}
	}
	slices.SortFunc(first, compare)
	return first[:min(len(first), most)]
}

func (k metricKey) compare(o metricKey) int {
	return cmp.Or(strings.Compare(k.resource.Group, o.resource.Group), strings.Compare(k.resource.Resource, o.resource.Resource), strings.Compare(k.name, o.name))
}
