// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// lists are the metrics that exist, in order and each once. They are immutable.
type lists struct {
	custom   []query.ObjectMetric
	external []string
}

// ObjectMetrics implements query.ObjectMetrics. The slice is shared.
func (c *Catalogue) ObjectMetrics() []query.ObjectMetric { return c.lists().custom }

// ExternalMetrics implements query.ExternalMetrics. The slice is shared.
func (c *Catalogue) ExternalMetrics() []string { return c.lists().external }

func (c *Catalogue) lists() *lists {
	if l := c.listed.Load(); l != nil {
		return l
	}
	c.mu.RLock()
	custom := make(map[metricKey]query.ObjectMetric, len(c.made.custom)+len(c.declaredCustom))
	for key, d := range c.declaredCustom {
		custom[key.metricKey] = d.metric
	}
	for key, bindings := range c.made.custom {
		custom[key] = newest(bindings).metric
	}
	external := make(map[string]bool, len(c.made.external)+len(c.declaredExternal))
	for name := range c.made.external {
		external[name] = true
	}
	for key := range c.declaredExternal {
		external[key.Name] = true
	}
	l := &lists{external: slices.Sorted(maps.Keys(external))}
	// Stored before changes are let in again: they clear it.
	defer c.mu.RUnlock()
	l.custom = slices.SortedFunc(maps.Values(custom), func(a, b query.ObjectMetric) int {
		return cmp.Or(strings.Compare(a.Resource.Group, b.Resource.Group), strings.Compare(a.Resource.Resource, b.Resource.Resource), strings.Compare(a.Name, b.Name))
	})
	c.listed.Store(l)
	return l
}
