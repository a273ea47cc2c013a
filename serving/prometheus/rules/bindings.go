// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// live is a rule and what it makes of the series that exist.
type live struct {
	*rule
	resolved *resolved
	// made is by the name of the series.
	made map[string][]*binding
	// misnamed and homeless are series that make no metric.
	misnamed, homeless map[string]string
}

// begin makes a rule ready for series.
func (r *live) begin(x *restmapping.Index) {
	r.resolved = r.assoc.resolve(x)
	r.made, r.misnamed, r.homeless = map[string][]*binding{}, map[string]string{}, map[string]string{}
}

// binding is a metric that a rule makes of series of one name. It is immutable.
type binding struct {
	rule   *live
	family *family
	metric query.ObjectMetric
	// objectLabel names the object, and namespaceLabel its namespace.
	objectLabel, namespaceLabel string
	// plain says that the series' name needs no look when it is put into the query.
	plain bool
}

// compare orders the bindings of one metric; the last one counts.
func (b *binding) compare(o *binding) int {
	if c := cmp.Compare(b.rule.place, o.rule.place); c != 0 {
		return c
	}
	return strings.Compare(b.family.name, o.family.name)
}

// make works out the metrics that a rule makes of series of one name.
func (r *live) make(f *family) []*binding {
	if !r.keeps(f.name) {
		return nil
	}
	name, ok := r.naming.name(f.name)
	if !ok {
		return nil
	}
	if err := checkMetricName(name, r.external); err != nil {
		r.misnamed[f.name] = err.Error() + "; change name.as"
		return nil
	}
	plain := promql.PlainName(f.name)
	if !plain {
		if _, err := r.renderFor(f.name, plain, r.sample); err != nil {
			r.misnamed[f.name] = err.Error()
			return nil
		}
	}
	namespaceLabel := r.resolved.namespaceLabel(f)
	if namespaceLabel == "" {
		namespaceLabel = r.source.namespaceLabel
	}
	if r.external {
		b := &binding{rule: r, family: f, metric: query.ObjectMetric{Name: name}, namespaceLabel: namespaceLabel, plain: plain}
		r.made[f.name] = []*binding{b}
		return r.made[f.name]
	}
	var bindings []*binding
	for _, label := range r.resolved.overriddenFirst(f.sharedFirst(f.labels)) {
		resource, ok := r.resolved.of(label)
		if !ok || slices.ContainsFunc(bindings, func(b *binding) bool { return b.metric.Resource == resource.GroupResource() }) {
			continue // the first of several labels for one resource
		}
		bindings = append(bindings, &binding{
			rule: r, family: f, objectLabel: label, namespaceLabel: namespaceLabel, plain: plain,
			metric: query.ObjectMetric{Resource: resource.GroupResource(), Kind: resource.Kind, Namespaced: resource.Namespaced, Name: name},
		})
	}
	if len(bindings) == 0 {
		r.homeless[f.name] = strings.Join(f.labels, ", ")
		return nil
	}
	r.made[f.name] = bindings
	return bindings
}

// rebuild works out everything anew, and puts it in place.
func (c *Catalogue) rebuild() {
	made := newMetrics()
	for _, r := range c.rules {
		if r.failed() {
			continue
		}
		if r.made == nil {
			r.begin(c.index)
			if f := c.found[r.selection()]; f != nil {
				for _, family := range f.families {
					r.make(family)
				}
			}
		}
		for _, bindings := range r.made {
			for _, b := range bindings {
				made.insert(b)
			}
		}
	}
	c.mu.Lock()
	c.made = made
	c.mu.Unlock()
	c.wide.forget()
	c.judge()
}

// update takes in the changed families of one rule.
func (c *Catalogue) update(r *live, changed, gone []*family) {
	var removed, added []*binding
	drop := func(f *family) {
		removed = append(removed, r.made[f.name]...)
		delete(r.made, f.name)
		delete(r.misnamed, f.name)
		delete(r.homeless, f.name)
	}
	for _, f := range gone {
		drop(f)
	}
	for _, f := range changed {
		drop(f)
		added = append(added, r.make(f)...)
	}
	if len(removed) == 0 && len(added) == 0 {
		return
	}
	c.mu.Lock()
	for _, b := range removed {
		c.made.remove(b)
	}
	for _, b := range added {
		c.made.insert(b)
	}
	c.mu.Unlock()
	c.wide.forget()
}
