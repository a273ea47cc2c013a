// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// spellings has the names of external metrics with capital letters, in order, by namespace (empty
// for those of rules) and name in lower case, in which client-go asks for them.
type spellings map[namespacedMetric][]string

func lowerCase(namespace, name string) namespacedMetric {
	return namespacedMetric{namespace, metricKey{name: name}.folded()}
}

func (s spellings) add(namespace, name string) {
	key := lowerCase(namespace, name)
	if i, found := slices.BinarySearch(s[key], name); !found && key.name != name {
		s[key] = slices.Insert(s[key], i, name)
	}
}

func (s spellings) remove(namespace, name string) {
	key := lowerCase(namespace, name)
	if i, found := slices.BinarySearch(s[key], name); found {
		s[key] = slices.Delete(s[key], i, i+1)
	}
	if len(s[key]) == 0 {
		delete(s, key)
	}
}

// ExternalName implements query.ExternalMetrics.
func (c *Catalog) ExternalName(namespace, requested string) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch all := c.spelled(namespace, requested); len(all) {
	case 0:
		made, _ := c.withoutSeries(metricKey{name: requested})
		return cmp.Or(made, requested)
	case 1:
		return all[0]
	}
	return requested
}

// spelled returns the external metrics in a namespace whose names equal a name but for the case of
// letters: the one of that name first, and at least two if there are more. c.mu is held.
func (c *Catalog) spelled(namespace, name string) (all []string) {
	for _, names := range [][]string{c.metrics.spellings[lowerCase("", name)], c.spellings[lowerCase(namespace, name)]} {
		all = append(all, names[:min(len(names), 2)]...)
	}
	for _, key := range []metricKey{{name: name}, lowerCase("", name).metricKey} {
		if c.declared[namespacedMetric{namespace, key}] != nil || c.metrics.effective(key) != nil {
			all = append(all, key.name)
		}
	}
	exact := trueFirst(func(other string) bool { return other == name })
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(exact(a, b), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// ambiguous says which two metrics a name may mean for autoscalers; empty if not two. c.mu is held.
func (c *Catalog) ambiguous(namespace, name string) string {
	all := c.spelled(namespace, name)
	if len(all) < 2 {
		return ""
	}
	return fmt.Sprintf("the external metrics %q and %q differ in case alone, and autoscalers ask in lower case: give one of them another name", all[0], all[1])
}
