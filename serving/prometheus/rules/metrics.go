// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"
)

// metrics are what the rules make, by the metrics' names. Only changes write it.
type metrics struct {
	// Each list is in order, and its last binding counts.
	custom   map[metricKey][]*binding
	external map[string][]*binding
	// crowded are the lists with more than one binding: looking through all for them
	// would cost each change as much as all metrics there are.
	crowdedCustom   map[metricKey]bool
	crowdedExternal map[string]bool
}

func newMetrics() *metrics {
	return &metrics{
		custom: map[metricKey][]*binding{}, external: map[string][]*binding{},
		crowdedCustom: map[metricKey]bool{}, crowdedExternal: map[string]bool{},
	}
}

func (m *metrics) insert(b *binding) {
	if b.rule.external {
		add(m.external, m.crowdedExternal, b.metric.Name, b)
	} else {
		add(m.custom, m.crowdedCustom, metricKey{b.metric.Resource, b.metric.Name}, b)
	}
}

func (m *metrics) remove(b *binding) {
	if b.rule.external {
		drop(m.external, m.crowdedExternal, b.metric.Name, b)
	} else {
		drop(m.custom, m.crowdedCustom, metricKey{b.metric.Resource, b.metric.Name}, b)
	}
}

func add[K comparable](all map[K][]*binding, crowded map[K]bool, key K, b *binding) {
	list := all[key]
	i, _ := slices.BinarySearchFunc(list, b, (*binding).compare)
	all[key] = slices.Insert(list, i, b)
	if len(list) > 0 {
		crowded[key] = true
	}
}

func drop[K comparable](all map[K][]*binding, crowded map[K]bool, key K, b *binding) {
	list := slices.DeleteFunc(all[key], func(o *binding) bool { return o == b })
	all[key] = list
	if len(list) < 2 {
		delete(crowded, key)
	}
	if len(list) == 0 {
		delete(all, key)
	}
}

// collision is a binding that another one outdoes.
type collision struct{ loser, winner *binding }

// collisions returns those of each rule, in the order of the metrics.
func (m *metrics) collisions() map[*live][]collision {
	found := map[*live][]collision{}
	each := func(list []*binding) {
		winner := list[len(list)-1]
		for _, b := range list[:len(list)-1] {
			if b.rule == winner.rule && !b.rule.usesSeries {
				continue // the query is the same
			}
			found[b.rule] = append(found[b.rule], collision{b, winner})
		}
	}
	for key := range m.crowdedCustom {
		each(m.custom[key])
	}
	for key := range m.crowdedExternal {
		each(m.external[key])
	}
	for _, of := range found {
		slices.SortFunc(of, func(a, b collision) int {
			return cmp.Or(strings.Compare(a.loser.metric.Name, b.loser.metric.Name), strings.Compare(a.loser.metric.Resource.String(), b.loser.metric.Resource.String()), a.loser.compare(b.loser))
		})
	}
	return found
}

// newest returns what counts of a list; nil of an empty one.
func newest(list []*binding) *binding {
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}
