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

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// Resources is a restmapping.Directory.
type Resources interface {
	// Current returns the newest index, never nil.
	Current() *restmapping.Index
	// RefreshSoon requests a refresh because a resource is unknown.
	RefreshSoon()
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
	// judged are the rules whose health it is.
	judged []*live
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
