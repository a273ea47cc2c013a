// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// metricKey identifies a metric of objects or, without a resource, an external metric.
type metricKey struct {
	resource schema.GroupResource
	name     string
}

func keyOf(m query.ObjectMetric) metricKey { return metricKey{m.Resource, m.Name} }

func (k metricKey) external() bool { return k.resource.Resource == "" }

func (k metricKey) compare(o metricKey) int {
	return cmp.Or(strings.Compare(k.resource.Group, o.resource.Group), strings.Compare(k.resource.Resource, o.resource.Resource), strings.Compare(k.name, o.name))
}

// bindingIndex has the bindings of all rules by metric.
type bindingIndex struct {
	// lists are in order, and the last binding of each is the effective one.
	lists map[metricKey][]*binding
	// colliding has the keys of lists with more than one binding, so that collisions need not
	// go through all metrics.
	colliding map[metricKey]bool
}

// metrics are those of rules. Catalog.changing serializes writes.
type metrics struct {
	custom, external bindingIndex
	spellings        spellings
}

func newMetrics() *metrics {
	return &metrics{
		custom:    bindingIndex{map[metricKey][]*binding{}, map[metricKey]bool{}},
		external:  bindingIndex{map[metricKey][]*binding{}, map[metricKey]bool{}},
		spellings: spellings{},
	}
}

func (m *metrics) index(external bool) *bindingIndex {
	if external {
		return &m.external
	}
	return &m.custom
}

func (m *metrics) insert(b *binding) {
	key, x := keyOf(b.metric), m.index(b.rule.external)
	list := x.lists[key]
	i, _ := slices.BinarySearchFunc(list, b, (*binding).compare)
	x.lists[key] = slices.Insert(list, i, b)
	switch {
	case len(list) > 0:
		x.colliding[key] = true
	case b.rule.external:
		m.spellings.add("", key.name)
	}
}

func (m *metrics) remove(b *binding) {
	key, x := keyOf(b.metric), m.index(b.rule.external)
	list := slices.DeleteFunc(x.lists[key], func(o *binding) bool { return o == b })
	x.lists[key] = list
	if len(list) < 2 {
		delete(x.colliding, key)
	}
	if len(list) == 0 {
		delete(x.lists, key)
		if b.rule.external {
			m.spellings.remove("", key.name)
		}
	}
}

// effective returns the binding that overrides the others of a metric; nil if there is none.
func (m *metrics) effective(key metricKey) *binding {
	list := m.index(key.external()).lists[key]
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// collision is a binding that another one overrides, or whose name differs from another's in case alone.
type collision struct{ loser, winner *binding }

// collisions returns the bindings that collide by rule: those that differ in case first, in the order of the metrics.
func (m *metrics) collisions() map[*activeRule][]collision {
	found := map[*activeRule][]collision{}
	for _, x := range []bindingIndex{m.custom, m.external} {
		for key := range x.colliding {
			winner := m.effective(key)
			for _, b := range x.lists[key] {
				// The queries of one rule are equal unless they use the name of the series.
				if b != winner && (b.rule != winner.rule || b.rule.usesSeries) {
					found[b.rule] = append(found[b.rule], collision{b, winner})
				}
			}
		}
	}
	for key, names := range m.spellings {
		if m.effective(key.metricKey) != nil {
			names = append(slices.Clip(names), key.name)
		}
		for i, name := range names {
			b, other := m.effective(metricKey{name: name}), m.effective(metricKey{name: names[(i+1)%len(names)]})
			if b != other && (i == 0 || len(names) > 2 || b.rule != other.rule) {
				found[b.rule] = append(found[b.rule], collision{b, other})
			}
		}
	}
	inCase := trueFirst(func(c collision) bool { return c.loser.metric.Name != c.winner.metric.Name })
	for _, of := range found {
		slices.SortFunc(of, func(a, b collision) int {
			return cmp.Or(inCase(a, b), strings.Compare(a.loser.metric.Name, b.loser.metric.Name), strings.Compare(a.loser.metric.Resource.String(), b.loser.metric.Resource.String()), a.loser.compare(b.loser))
		})
	}
	return found
}

// metricLists has the metrics that discovery lists, in order. It is immutable.
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
	omitted := map[string]int{}
	l := &metricLists{most: most, custom: c.list(false, most, omitted)}
	for _, m := range c.list(true, most, omitted) {
		l.external = append(l.external, m.Name)
	}
	if !maps.Equal(omitted, c.omitted) {
		c.omitted = omitted
		c.updateHealth()
	}
	c.cachedLists = l
	return l, c.health
}

// list returns custom or external metrics, and adds the number of those that it leaves out to
// omitted, by the path of the rule or, for declared ones, of the part of the spec. c.changing is held.
func (c *Catalog) list(external bool, most int, omitted map[string]int) []query.ObjectMetric {
	x, ofRules, ofNamespaces := c.metrics.index(external), shares{}, shares{}
	for _, r := range c.rules {
		if r.external != external {
			continue
		}
		for _, bindings := range r.bindings { // of a rule they are near each other in memory
			for _, b := range bindings {
				if key := keyOf(b.metric); !x.colliding[key] || c.metrics.effective(key) == b {
					ofRules.add(shareKey{r.path, key.resource}, &b.metric)
				}
			}
		}
	}
	all, left := ofRules.divide(most, omitted)
	// Declared metrics come last, so that they cannot displace those of the administrator.
	for _, d := range c.onlyDeclared(external) {
		ofNamespaces.add(shareKey{owner: d.Namespace}, &d.metric)
	}
	listed, _ := ofNamespaces.divide(left, map[string]int{})
	all = append(all, listed...)
	omitted[partPath[external]] = c.countMetrics(external) - len(x.lists) - len(listed)
	return all
}

// onlyDeclared returns the metrics, in no order, that only namespaces declare: a metric of several
// ones as often. c.changing is held.
func (c *Catalog) onlyDeclared(external bool) (all []*declared) {
	for key, d := range c.declared {
		if key.external() == external && c.metrics.effective(key.metricKey) == nil {
			all = append(all, d)
		}
	}
	return all
}

// countMetrics requires that c.changing is held.
func (c *Catalog) countMetrics(external bool) int {
	only := map[metricKey]bool{}
	for _, d := range c.onlyDeclared(external) {
		only[keyOf(d.metric)] = true
	}
	return len(c.metrics.index(external).lists) + len(only)
}
