// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// activeRule is a rule with its metrics of the series that exist.
type activeRule struct {
	*rule
	resolved *resolvedAssociation
	// bindings by series name; nil before init.
	bindings map[string][]*binding
	// invalidNames holds the errors of series whose metric would have an invalid name, and
	// unassociated the labels of series that name no object.
	invalidNames, unassociated map[string]string
}

// init removes all bindings.
func (r *activeRule) init(x *restmapping.Mapper) {
	r.resolved = r.assoc.resolve(x)
	r.bindings, r.invalidNames, r.unassociated = map[string][]*binding{}, map[string]string{}, map[string]string{}
}

// binding is a metric that a rule defines for a family of series. It is immutable.
type binding struct {
	rule   *activeRule
	family *family
	metric query.ObjectMetric
	// objectLabel names the object, and namespaceLabel its namespace.
	objectLabel, namespaceLabel string
	// plain is set if the series' name is safe anywhere in a query.
	plain bool
}

// compare orders the bindings of one metric; the last one is effective.
func (b *binding) compare(o *binding) int {
	return cmp.Or(cmp.Compare(b.rule.position, o.rule.position), strings.Compare(b.family.name, o.family.name))
}

// bind adds the metrics of a family, and returns them.
func (r *activeRule) bind(f *family) []*binding {
	if !r.matches(f.name) {
		return nil
	}
	name, ok := r.naming.name(f.name)
	if !ok {
		return nil
	}
	if err := checkMetricName(name, r.external); err != nil {
		r.invalidNames[f.name] = err.Error() + "; change name.as"
		return nil
	}
	plain := promql.PlainName(f.name)
	if !plain {
		if _, err := r.renderFor(f.name, plain, r.sample); err != nil {
			r.invalidNames[f.name] = err.Error()
			return nil
		}
	}
	namespaceLabel := cmp.Or(r.resolved.namespaceLabel(f), r.source.namespaceLabel)
	if r.external {
		b := &binding{rule: r, family: f, metric: query.ObjectMetric{Name: name}, namespaceLabel: namespaceLabel, plain: plain}
		r.bindings[f.name] = []*binding{b}
		return r.bindings[f.name]
	}
	var bindings []*binding
	for _, label := range r.resolved.overriddenFirst(f.commonFirst(f.labels)) {
		resource, ok := r.resolved.resource(label)
		if !ok || slices.ContainsFunc(bindings, func(b *binding) bool { return b.metric.Resource == resource.GroupResource() }) {
			continue // of several labels for one resource the first is used
		}
		bindings = append(bindings, &binding{
			rule: r, family: f, objectLabel: label, namespaceLabel: namespaceLabel, plain: plain,
			metric: query.ObjectMetric{Resource: resource.GroupResource(), Kind: resource.Kind, Namespaced: resource.Namespaced, Name: name},
		})
	}
	if len(bindings) == 0 {
		r.unassociated[f.name] = strings.Join(f.labels, ", ")
		return nil
	}
	r.bindings[f.name] = bindings
	return bindings
}

// rebuild computes the metrics of all rules. c.changing is held.
func (c *Catalog) rebuild() {
	all := newMetrics()
	for _, r := range c.rules {
		if r.failed() {
			continue
		}
		if r.bindings == nil {
			r.init(c.index)
			if f := c.discovered[r.selection()]; f != nil {
				for _, family := range f.families {
					r.bind(family)
				}
			}
		}
		for _, bindings := range r.bindings {
			for _, b := range bindings {
				all.insert(b)
			}
		}
	}
	c.mu.Lock()
	c.metrics = all
	c.mu.Unlock()
	c.shared.Clear()
	c.updateHealth()
}

// update applies changed families to one rule. The series of those that are gone ended about then.
// c.changing is held.
func (c *Catalog) update(r *activeRule, changed, gone []*family, ended time.Time) {
	var removed, added []*binding
	drop := func(f *family) {
		removed = append(removed, r.bindings[f.name]...)
		delete(r.bindings, f.name)
		delete(r.invalidNames, f.name)
		delete(r.unassociated, f.name)
	}
	for _, f := range gone {
		drop(f)
	}
	for _, f := range changed {
		drop(f)
		added = append(added, r.bind(f)...)
	}
	if len(removed) == 0 && len(added) == 0 {
		return
	}
	c.mu.Lock()
	for _, b := range removed {
		c.metrics.remove(b)
	}
	for _, b := range added {
		c.metrics.insert(b)
	}
	for _, b := range removed {
		if key := keyOf(b.metric); c.metrics.effective(key) == nil && !ended.IsZero() {
			c.ended.Add(key.folded(), endedMetric{r.path, b.family.name, ended})
		}
	}
	c.mu.Unlock()
	c.shared.Clear()
}
