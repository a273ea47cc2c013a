// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
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

// maxExplained limits the rules without metrics that an error names.
const maxExplained = 5

// whyMissing names what may have been meant to define a metric that does not exist: a declared
// metric of the namespace, and rules without metrics. It begins with a semicolon unless it is
// empty. Rules are the cluster's: their messages, with queries and addresses, are not for every
// client.
func (c *Catalog) whyMissing(namespace string, key metricKey) string {
	var b strings.Builder
	kind, prefix := kindCustomMetric, "spec.customMetrics."
	if key.external() {
		kind, prefix = kindExternalMetric, "spec.externalMetrics."
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, d := range c.declaredAll {
		if d.Reason != "" && d.Kind == kind && d.Namespace == namespace && d.metric.Name == key.name {
			fmt.Fprintf(&b, "; not in effect is %s (%s: %s)", d.path(), d.Reason, text.Truncate(d.Message, 200))
			break
		}
	}
	missing := firstOfEach(c.health.Rules, func(h *v1alpha1.RuleHealth) bool {
		return h.State != v1alpha1.RuleWarning && strings.HasPrefix(h.Path, prefix)
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
