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
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// InvalidRules returns a problem of each invalid rule, in the order of the spec.
func (c *Catalog) InvalidRules() []v1alpha1.RuleHealth {
	return firstOfEach(c.Health().Rules, func(h *v1alpha1.RuleHealth) bool { return h.State == v1alpha1.RuleInvalid })
}

// InvalidDeclared returns why declared metrics are not in effect, each with its kind, namespace
// and name as the path. It has no metrics of unknown resources before discovery was read.
func (c *Catalog) InvalidDeclared() []v1alpha1.RuleHealth {
	undiscovered := c.resources.Current().Empty()
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all []v1alpha1.RuleHealth
	for _, d := range c.declaredAll {
		if d.Reason != "" && (d.Reason != ReasonUnknownResource || !undiscovered) {
			all = append(all, v1alpha1.RuleHealth{Path: d.path(), State: v1alpha1.RuleInvalid, Reason: d.Reason, Message: d.Message})
		}
	}
	return all
}

func (d *declared) path() string { return fmt.Sprintf("%s %s/%s", d.Kind, d.Namespace, d.Name) }

// firstOfEach returns the first selected problem of each rule.
func firstOfEach(problems []v1alpha1.RuleHealth, selects func(*v1alpha1.RuleHealth) bool) []v1alpha1.RuleHealth {
	var all []v1alpha1.RuleHealth
	for i := range problems {
		if p := &problems[i]; selects(p) && (len(all) == 0 || all[len(all)-1].Path != p.Path) {
			all = append(all, *p)
		}
	}
	return all
}

// endedMetric is a metric whose last series ended.
type endedMetric struct {
	path, series string    // of the rule, and the name of the series
	time         time.Time // about when it ended
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

// missing returns the error for a metric that has no series now, or that nothing makes: a NotFound,
// unless a rule may make it whose series are not known.
func (c *Catalog) missing(namespace string, key metricKey, unknown error) error {
	c.mu.RLock()
	_, why := c.withoutSeries(key)
	c.mu.RUnlock()
	everywhere := namespace == query.AllNamespaces
	switch {
	case why != "":
		why += ": check what exports them"
		if key.external() && !everywhere {
			why += `; if 0 is right without series, declare the metric in an ExternalMetric whose query ends in "or vector(0)"`
		}
	case unknown != nil:
		return unavailable("no rule is known to make the metric %q, but %v", key.name, unknown)
	case !key.external():
		why = fmt.Sprintf("no rule and no CustomMetric makes the metric %q of %s", key.name, key.resource)
	case everywhere:
		return badRequest("no rule makes the metric %q, and what an ExternalMetric declares is asked under its namespace instead of *%s", key.name, c.whyMissing(namespace, key))
	default:
		why = fmt.Sprintf("no rule makes the metric %q, and no ExternalMetric does in namespace %q", key.name, namespace)
	}
	return notFound("%s%s", why, c.whyMissing(namespace, key))
}

// withoutSeries returns the metric that a rule makes of series that there are not, whatever the case
// of an external one, and says which rule that is, and since when; empty if that is not known. c.mu is held.
func (c *Catalog) withoutSeries(key metricKey) (name, why string) {
	ended, had := c.ended.Get(key.folded())
	makes := func(r *activeRule, series string) bool {
		made, ok := r.naming.name(series)
		if !ok || !r.matches(series) || (metricKey{key.resource, made}).folded() != key.folded() {
			return false
		}
		name = made
		return true
	}
	for _, r := range c.healthRules {
		switch {
		case r.failed() || r.external != key.external():
		case had && r.path == ended.path && makes(r, ended.series):
			return name, fmt.Sprintf("the metric %q had series until about %s, and has none now: %s makes it of the series %s",
				key.name, ended.time.UTC().Format(time.RFC3339), r.path, quoteName(ended.series))
		case r.series != "" && makes(r, r.series) && slices.ContainsFunc(c.health.Rules, func(h v1alpha1.RuleHealth) bool { return h.Path == r.path && h.Reason == ReasonNoSeries }):
			why = fmt.Sprintf("%s makes the metric %q, but its seriesQuery matches no series", r.path, key.name)
		}
	}
	return name, why
}

// maxExplained limits the rules without metrics that an error names.
const maxExplained = 5

// whyMissing names what may have been meant to define a metric that does not exist: two whose names
// differ in case alone, or a declared metric of the namespace, and rules without metrics. It begins
// with a semicolon unless it is empty. Rules are the cluster's: their messages, with queries and
// addresses, are not for every client.
func (c *Catalog) whyMissing(namespace string, key metricKey) string {
	var b strings.Builder
	c.mu.RLock()
	defer c.mu.RUnlock()
	if both := c.ambiguous(namespace, key.name); key.external() && both != "" {
		return "; " + both
	}
	if d := c.notInEffect(namespace, key); d != nil {
		fmt.Fprintf(&b, "; not in effect is %s (%s: %s)", d.path(), d.Reason, text.Truncate(d.Message, 200))
	}
	missing := firstOfEach(c.health.Rules, func(h *v1alpha1.RuleHealth) bool {
		return h.State != v1alpha1.RuleWarning && strings.HasPrefix(h.Path, partPath[key.external()]+".")
	})
	for i, h := range missing {
		switch i {
		case maxExplained:
			fmt.Fprintf(&b, " and %d more", len(missing)-i)
			return b.String()
		case 0:
			b.WriteString("; without metrics because of errors: ")
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s)", h.Path, h.Reason)
	}
	return b.String()
}

// notInEffect returns what declares a metric in a namespace, but is not in effect; nil if there is nothing. c.mu is held.
func (c *Catalog) notInEffect(namespace string, key metricKey) *declared {
	kind := kindCustomMetric
	if key.external() {
		kind = kindExternalMetric
	}
	for _, d := range c.declaredAll {
		if d.Reason != "" && d.Kind == kind && d.Namespace == namespace && d.metric.Name == key.name {
			return d
		}
	}
	return nil
}
