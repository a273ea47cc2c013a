// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// Resources knows the cluster's resources.
type Resources interface {
	// Current returns what is known now; never nil.
	Current() *restmapping.Index
	// Wanted says that something that is asked for is not known.
	Wanted()
}

// Selection is what a source is asked for the series of.
type Selection struct {
	// Source is its name in spec.sources.
	Source string
	// Selector is a selector in PromQL, as in match[].
	Selector string
}

// Catalogue holds the metrics that exist now. It is ready for concurrent use; reads
// never wait for a compilation.
type Catalogue struct {
	resources Resources

	// changing serialises changes; mu is held for writing only while a change that is
	// worked out already is put in place.
	changing sync.Mutex
	mu       sync.RWMutex

	// Guarded by changing.
	sources  *sources
	rules    []*live
	found    map[Selection]*found
	index    *restmapping.Index
	objects  []declaredObject
	compiled map[declaredID]*declared
	// listed are the lists of metrics, made when they are asked for.
	listed *lists

	// Guarded by mu, and written by changes alone.
	made *metrics
	// declaredCustom and declaredExternal are the declared metrics that are in force.
	declaredCustom   map[namespacedMetric]*declared
	declaredExternal map[types.NamespacedName]*declared
	declaredAll      []*declared
	health           Health
	// unknownCustom and unknownExternal say why metrics of rules may be missing; nil
	// when all series are known.
	unknownCustom, unknownExternal error

	wide wideReadings
}

var (
	_ query.ObjectMetrics   = (*Catalogue)(nil)
	_ query.ExternalMetrics = (*Catalogue)(nil)
)

// NewCatalogue returns a catalogue without metrics.
func NewCatalogue(r Resources) *Catalogue {
	return &Catalogue{
		resources: r, sources: &sources{}, found: map[Selection]*found{}, index: r.Current(),
		made: newMetrics(),
	}
}

// metricKey is a metric of objects.
type metricKey struct {
	resource schema.GroupResource
	name     string
}

// live is a rule and what it makes of the series that exist.
type live struct {
	*rule
	resolved *resolved
	// made is by the name of the series.
	made map[string][]*binding
	// misnamed and homeless are series that make no metric.
	misnamed, homeless map[string]string
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

// family is all series of one name that a selection found.
type family struct {
	name string
	// labels that some of the series have, in order.
	labels []string
	// count of the series, renewed without a change of the family.
	count *atomic.Int64
}

// found is what is known of a selection.
type found struct {
	families map[string]*family
	last     []series.Series
	// known says that the source has answered once.
	known bool
	// cut says that there are more, which are not known.
	cut bool
	err error
}

// Apply puts the sources and rules of a spec in force. Rules that did not change stay
// as they are. Rules whose selections are new make metrics once SetSeries told of
// their series.
func (c *Catalogue) Apply(spec *v1alpha1.MetricsBackendSpec) {
	c.changing.Lock()
	defer c.changing.Unlock()
	srcs := newSources(spec.Sources)
	same := srcs.equal(c.sources)
	if !same {
		c.sources = srcs
	}
	old := make(map[string][]*live, len(c.rules))
	if same {
		for _, r := range c.rules {
			old[r.path] = append(old[r.path], r)
		}
	}
	var next []*live
	add := func(field string, specs []v1alpha1.MetricRule, external bool) {
		for i := range specs {
			path := fmt.Sprintf("spec.%s.rules[%d]", field, i)
			if known := old[path]; len(known) == 1 && reflect.DeepEqual(known[0].spec, specs[i]) {
				next = append(next, known[0])
				continue
			}
			next = append(next, &live{rule: compile(specs[i], path, i, external, c.sources)})
		}
	}
	if spec.CustomMetrics != nil {
		add("customMetrics", spec.CustomMetrics.Rules, false)
	}
	if spec.ExternalMetrics != nil {
		add("externalMetrics", spec.ExternalMetrics.Rules, true)
	}
	if same && slices.Equal(next, c.rules) {
		return
	}
	c.rules = next
	wanted := map[Selection]bool{}
	for _, s := range c.selections() {
		wanted[s] = true
	}
	for s := range c.found {
		if !wanted[s] {
			delete(c.found, s)
		}
	}
	c.rebuild()
	if !same {
		c.declare(true)
	}
}

// SetResources takes in what the cluster has now.
func (c *Catalogue) SetResources(x *restmapping.Index) {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.index = x
	for i, r := range c.rules {
		// A copy: readers still hold the old one, which is of the old index.
		c.rules[i] = &live{rule: r.rule}
	}
	c.rebuild()
	c.declare(true)
}

// Selections returns what sources are to be asked the series of, in order and each once.
func (c *Catalogue) Selections() []Selection {
	c.changing.Lock()
	defer c.changing.Unlock()
	return c.selections()
}

func (c *Catalogue) selections() []Selection {
	var all []Selection
	for _, r := range c.rules {
		if !r.failed() {
			all = append(all, r.selection())
		}
	}
	slices.SortFunc(all, func(a, b Selection) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Selector, b.Selector))
	})
	return slices.Compact(all)
}

func (r *rule) selection() Selection { return Selection{r.source.name, r.selector} }

// SetFound tells what discovery knows of a selection's series.
func (c *Catalogue) SetFound(s Selection, f series.Found) {
	if !f.Time.IsZero() {
		c.setSeries(s, f.Series, f.Cut)
	}
	if f.Err != nil {
		c.SetSeriesFailure(s, f.Err)
	}
}

// SetSeries tells of all series that a selection has now, of which it keeps the slice.
// It costs what changed.
func (c *Catalogue) SetSeries(s Selection, all []series.Series) { c.setSeries(s, all, false) }

func (c *Catalogue) setSeries(s Selection, all []series.Series, cut bool) {
	c.changing.Lock()
	defer c.changing.Unlock()
	f := c.found[s]
	if f == nil {
		if !slices.Contains(c.selections(), s) {
			return // no rule asks for it any more
		}
		f = &found{families: map[string]*family{}}
		c.found[s] = f
	}
	news := !f.known || f.err != nil || f.cut != cut
	// Discovery keeps the slice while nothing is new.
	same := f.known && len(all) == len(f.last) && (len(all) == 0 || &all[0] == &f.last[0])
	if same && !news {
		return
	}
	f.last = all
	next := families(all)
	f.known, f.err, f.cut = true, nil, cut
	var changed, gone []*family
	for name, fresh := range next {
		old := f.families[name]
		if old != nil && slices.Equal(old.labels, fresh.labels) {
			old.count.Store(fresh.count.Load())
			next[name] = old
			continue
		}
		changed = append(changed, fresh)
	}
	for name, old := range f.families {
		if next[name] == nil {
			gone = append(gone, old)
		}
	}
	f.families = next
	if len(changed) == 0 && len(gone) == 0 {
		if news {
			c.judge()
		}
		return
	}
	for _, r := range c.rules {
		if !r.failed() && r.selection() == s {
			c.update(r, changed, gone)
		}
	}
	c.judge()
}

// SetSeriesFailure tells why a selection's series could not be learnt. Those that are
// known stay.
func (c *Catalogue) SetSeriesFailure(s Selection, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	f := c.found[s]
	if f == nil {
		if !slices.Contains(c.selections(), s) {
			return
		}
		f = &found{families: map[string]*family{}}
		c.found[s] = f
	}
	f.err = err
	c.judge()
}

// families puts series of one name together.
func families(found []series.Series) map[string]*family {
	all := make(map[string]*family, len(found))
	for i := range found {
		s := &found[i]
		if s.Name == "" {
			continue
		}
		f := all[s.Name]
		if f == nil {
			f = &family{name: s.Name, labels: s.Labels, count: &atomic.Int64{}}
			all[s.Name] = f
		} else if !slices.Equal(f.labels, s.Labels) {
			f.labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(f.labels, s.Labels))))
		}
		f.count.Add(int64(s.Count))
	}
	return all
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

// begin makes a rule ready for series.
func (r *live) begin(x *restmapping.Index) {
	r.resolved = r.assoc.resolve(x)
	r.made, r.misnamed, r.homeless = map[string][]*binding{}, map[string]string{}, map[string]string{}
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
	namespaceLabel := r.resolved.namespaceLabel(f.labels)
	if namespaceLabel == "" {
		namespaceLabel = r.source.namespaceLabel
	}
	if r.external {
		b := &binding{rule: r, family: f, metric: query.ObjectMetric{Name: name}, namespaceLabel: namespaceLabel, plain: plain}
		r.made[f.name] = []*binding{b}
		return r.made[f.name]
	}
	var bindings []*binding
	for _, label := range r.resolved.overriddenFirst(f.labels) {
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
