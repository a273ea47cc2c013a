// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/lru"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
)

// endedMetric is a metric whose last series ended.
type endedMetric struct {
	// path is that of the rule, and series the name of the last series.
	path, series string
	// time is about when it ended.
	time time.Time
}

// newEndedMetrics returns a cache of ended metrics, whose names scraped workloads choose.
func newEndedMetrics() *lru.Cache[metricKey, endedMetric] {
	const maxEnded, maxEndedBytes = 1000, 512 << 10
	return lru.New(maxEnded, maxEndedBytes, func(k metricKey, e endedMetric) int {
		return len(k.resource.Group) + len(k.resource.Resource) + len(k.name) + len(e.path) + len(e.series)
	})
}

// folded returns the key for a name as autoscalers ask for it: client-go lower-cases external ones.
func (k metricKey) folded() metricKey {
	if k.external() {
		k.name = strings.ToLower(k.name)
	}
	return k
}

// missing returns the NotFound for a metric that has no series now, or that nothing makes.
func (c *Catalog) missing(namespace string, key metricKey) error {
	why := fmt.Sprintf("no rule and no CustomMetric makes the metric %q of %s", key.name, key.resource)
	declared := kindCustomMetric
	if key.external() {
		why, declared = fmt.Sprintf("no rule makes the metric %q, and no ExternalMetric does in namespace %q", key.name, namespace), kindExternalMetric
	}
	if rule := c.withoutSeries(key); rule != "" {
		why = fmt.Sprintf("%s: check what exports them; if 0 is right without series, declare the metric in a %s whose query ends in \"or vector(0)\"", rule, declared)
	}
	return notFound("%s%s", why, c.whyMissing(namespace, key))
}

// withoutSeries says which rule makes a metric that has no series, and since when; empty if it is
// not known that a rule does.
func (c *Catalog) withoutSeries(key metricKey) string {
	ended, had := c.ended.Get(key.folded())
	makes := func(r *activeRule, series string) bool {
		name, ok := r.metricName(series)
		return ok && metricKey{key.resource, name}.folded() == key.folded()
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	never := ""
	for _, r := range c.healthRules {
		switch {
		case r.failed() || r.external != key.external():
		case had && r.path == ended.path && makes(r, ended.series):
			return fmt.Sprintf("the metric %q had series until about %s, and has none now: %s makes it of the series %s",
				key.name, ended.time.UTC().Format(time.RFC3339), r.path, quoteName(ended.series))
		case makes(r, r.series) && slices.ContainsFunc(c.health.Rules, func(h v1alpha1.RuleHealth) bool { return h.Path == r.path && h.Reason == ReasonNoSeries }):
			never = fmt.Sprintf("%s makes the metric %q, but its seriesQuery matches no series", r.path, key.name)
		}
	}
	return never
}

// metricName returns the name of the metric of a series; false if the rule makes none of it. For no
// name it is that of any series, if all have the same.
func (r *rule) metricName(series string) (string, bool) {
	if series == "" {
		return r.naming.as, !strings.Contains(r.naming.as, "$")
	}
	if !r.matches(series) {
		return "", false
	}
	return r.naming.name(series)
}

// unreadable returns warnings about metrics that autoscalers cannot read: their requests fail, or
// answer nothing, for ever.
func (r *activeRule) unreadable() []*problem {
	// Of several series the first by name are shown, so that the message stays.
	var unlabeled, clusterScoped *binding
	for _, bindings := range r.bindings {
		for _, b := range bindings {
			first := &clusterScoped
			switch _, has := slices.BinarySearch(b.family.labels, b.namespaceLabel); {
			case !r.external && !b.metric.Namespaced:
				if b.metric.Resource == namespaces || b.metric.Resource == nodes {
					continue
				}
			case has:
				return nil // for most rules the first series decides
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
		return []*problem{warnf(ReasonNoNamespaceLabel, "no series has the label %q, %s for one, and metricsQuery selects by it, so that it finds nothing: %s the label of the namespace in resources.overrides, or add it to the series",
			b.namespaceLabel, quoteName(b.family.name), remedy)}
	case b == nil && clusterScoped != nil:
		return []*problem{warnf(ReasonClusterScoped, "autoscalers cannot read the metric %s of %s: these are in no namespace, and an autoscaler asks for objects of its own; make it in spec.externalMetrics.rules with resources.namespaced: false",
			quoteName(clusterScoped.metric.Name), clusterScoped.metric.Resource)}
	}
	return nil
}

// selectsNamespace reports whether the query selects the series by the label of the namespace.
func (b *binding) selectsNamespace() bool {
	const namespace = "default"
	q, err := b.input(namespace, nil)
	if err != nil || b.rule.external && !b.rule.namespaced {
		return false
	}
	if !b.rule.external {
		q.selectObjects(b.objectLabel, nil)
	}
	e, err := b.render(q)
	return err == nil && promql.Selects(e.text, b.family.name, promql.Equal(b.namespaceLabel, namespace))
}
