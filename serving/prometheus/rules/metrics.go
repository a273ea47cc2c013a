// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// metricKey identifies a metric of objects.
type metricKey struct {
	resource schema.GroupResource
	name     string
}

func (k metricKey) compare(o metricKey) int {
	return cmp.Or(strings.Compare(k.resource.Group, o.resource.Group), strings.Compare(k.resource.Resource, o.resource.Resource), strings.Compare(k.name, o.name))
}

// metrics indexes the bindings of all rules by metric. Catalog.changing serialises writes.
type metrics struct {
	// Each list is in order, and its last binding is the effective one.
	custom   map[metricKey][]*binding
	external map[string][]*binding
	// The keys of lists with more than one binding, so that collisions need not go through
	// all metrics.
	collidingCustom   map[metricKey]bool
	collidingExternal map[string]bool
}

func newMetrics() *metrics {
	return &metrics{
		custom: map[metricKey][]*binding{}, external: map[string][]*binding{},
		collidingCustom: map[metricKey]bool{}, collidingExternal: map[string]bool{},
	}
}

func (m *metrics) insert(b *binding) {
	if b.rule.external {
		add(m.external, m.collidingExternal, b.metric.Name, b)
	} else {
		add(m.custom, m.collidingCustom, metricKey{b.metric.Resource, b.metric.Name}, b)
	}
}

func (m *metrics) remove(b *binding) {
	if b.rule.external {
		drop(m.external, m.collidingExternal, b.metric.Name, b)
	} else {
		drop(m.custom, m.collidingCustom, metricKey{b.metric.Resource, b.metric.Name}, b)
	}
}

func add[K comparable](all map[K][]*binding, colliding map[K]bool, key K, b *binding) {
	list := all[key]
	i, _ := slices.BinarySearchFunc(list, b, (*binding).compare)
	all[key] = slices.Insert(list, i, b)
	if len(list) > 0 {
		colliding[key] = true
	}
}

func drop[K comparable](all map[K][]*binding, colliding map[K]bool, key K, b *binding) {
	list := slices.DeleteFunc(all[key], func(o *binding) bool { return o == b })
	all[key] = list
	if len(list) < 2 {
		delete(colliding, key)
	}
	if len(list) == 0 {
		delete(all, key)
	}
}

// collision is a binding that another one overrides.
type collision struct{ loser, winner *binding }

// collisions returns the overridden bindings by rule, in the order of the metrics.
func (m *metrics) collisions() map[*activeRule][]collision {
	found := map[*activeRule][]collision{}
	each := func(list []*binding) {
		winner := list[len(list)-1]
		for _, b := range list[:len(list)-1] {
			if b.rule == winner.rule && !b.rule.usesSeries {
				continue // their queries are equal
			}
			found[b.rule] = append(found[b.rule], collision{b, winner})
		}
	}
	for key := range m.collidingCustom {
		each(m.custom[key])
	}
	for key := range m.collidingExternal {
		each(m.external[key])
	}
	for _, of := range found {
		slices.SortFunc(of, func(a, b collision) int {
			return cmp.Or(strings.Compare(a.loser.metric.Name, b.loser.metric.Name), strings.Compare(a.loser.metric.Resource.String(), b.loser.metric.Resource.String()), a.loser.compare(b.loser))
		})
	}
	return found
}

// effective returns the binding that overrides the others of a list; nil for an empty list.
func effective(list []*binding) *binding {
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// metricLists holds the first metrics in order. It is immutable.
type metricLists struct {
	most     int
	custom   []query.ObjectMetric
	external []string
}

// ObjectMetrics implements query.ObjectMetrics. It returns the same, shared slice until
// metrics change.
func (c *Catalog) ObjectMetrics(most int) (first []query.ObjectMetric, total int) {
	l, h := c.lists(most)
	return l.custom, h.CustomMetrics
}

// ExternalMetrics implements query.ExternalMetrics. The slice is shared, too.
func (c *Catalog) ExternalMetrics(most int) (first []string, total int) {
	l, h := c.lists(most)
	return l.external, h.ExternalMetrics
}

// lists goes through all metrics with c.changing held, under which alone they are written, and
// without c.mu: requests would queue behind a writer that waits for this reader.
func (c *Catalog) lists(most int) (*metricLists, Health) {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.cachedLists != nil && c.cachedLists.most == most {
		return c.cachedLists, c.health
	}
	custom := firstN(maps.Keys(c.metrics.custom), most, metricKey.compare)
	external := firstN(maps.Keys(c.metrics.external), most, strings.Compare)
	// Declared metrics come last, so that they cannot displace those of the administrator.
	declaredCustom, declaredExternal := c.onlyDeclared()
	l := &metricLists{most: most, external: slices.Concat(external, firstN(maps.Keys(declaredExternal), most-len(external), strings.Compare))}
	for _, key := range custom {
		l.custom = append(l.custom, effective(c.metrics.custom[key]).metric)
	}
	for _, key := range firstN(maps.Keys(declaredCustom), most-len(custom), metricKey.compare) {
		l.custom = append(l.custom, declaredCustom[key])
	}
	c.cachedLists = l
	return l, c.health
}

// onlyDeclared returns the declared metrics, of all namespaces, that no rule defines.
// c.changing is held.
func (c *Catalog) onlyDeclared() (custom map[metricKey]query.ObjectMetric, external map[string]bool) {
	custom, external = map[metricKey]query.ObjectMetric{}, map[string]bool{}
	for key, d := range c.declaredCustom {
		if len(c.metrics.custom[key.metricKey]) == 0 {
			custom[key.metricKey] = d.metric
		}
	}
	for key := range c.declaredExternal {
		if len(c.metrics.external[key.Name]) == 0 {
			external[key.Name] = true
		}
	}
	return custom, external
}

// countMetrics requires that c.changing is held.
func (c *Catalog) countMetrics() (custom, external int) {
	declaredCustom, declaredExternal := c.onlyDeclared()
	return len(c.metrics.custom) + len(declaredCustom), len(c.metrics.external) + len(declaredExternal)
}

// firstN returns the first keys in order. It sorts at most 2n at a time, as there may be a
// million of which few are wanted.
func firstN[K any](all iter.Seq[K], n int, compare func(a, b K) int) []K {
	if n <= 0 {
		return nil
	}
	var first []K
	full := false
	for key := range all {
		if full && compare(key, first[n-1]) >= 0 {
			continue
		}
		if first = append(first, key); len(first)-n >= n {
			slices.SortFunc(first, compare)
			first, full = first[:n], true
		}
	}
	slices.SortFunc(first, compare)
	return first[:min(len(first), n)]
}
