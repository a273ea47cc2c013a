// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/lru"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

// Resources is a restmapping.Directory.
type Resources interface {
	// Current returns the newest index, never nil.
	Current() *restmapping.Mapper
	// RefreshSoon requests a refresh because a resource is unknown.
	RefreshSoon()
}

// Selection is a lookup of series.
type Selection struct {
	// Source is its name in spec.sources.
	Source string
	// Selector is a PromQL series selector, as in match[].
	Selector string
}

// Catalog holds the metrics that exist. It is safe for concurrent use; reads never wait for
// rules to compile.
type Catalog struct {
	resources Resources
	clock     clock.PassiveClock

	// changing serializes changes; mu is locked for writing only to publish their result.
	changing sync.Mutex
	mu       sync.RWMutex

	// Guarded by changing.
	sources    sources
	rules      []*activeRule
	discovered map[Selection]*discovered
	index      *restmapping.Mapper
	objects    []declaredObject
	compiled   map[declaredID]*declared
	// cachedLists is nil after each change.
	cachedLists *metricLists
	// omitted are the numbers of metrics that the last lists left out, by path.
	omitted map[string]int

	// Guarded by mu, and written only with changing held, too.
	metrics *metrics
	// declared are the declared metrics that are in effect, spellings their names, and declaredAll
	// all in order.
	declared    map[namespacedMetric]*declared
	spellings   spellings
	declaredAll []*declared
	health      Health
	// healthRules are the rules of health.
	healthRules []*activeRule
	// unknown is why metrics of rules may be missing, by whether they are external; nil once all
	// lookups of series have succeeded.
	unknown map[bool]error

	shared *lru.Cache[sharedKey, *sharedQuery]
	// ended has metrics of rules whose last series ended, by metricKey.folded.
	ended *lru.Cache[metricKey, endedMetric]
}

var (
	_ query.ObjectMetrics   = (*Catalog)(nil)
	_ query.ExternalMetrics = (*Catalog)(nil)
)

// NewCatalog returns a catalog without metrics.
func NewCatalog(r Resources, c clock.PassiveClock) *Catalog {
	return &Catalog{
		resources: r, clock: c, discovered: map[Selection]*discovered{}, index: r.Current(),
		metrics: newMetrics(), shared: newSharedQueries(), ended: newEndedMetrics(),
	}
}

// Apply sets the sources and rules to those of a spec. Rules that have not changed keep their
// metrics; those with new selections have none before SetSeries.
func (c *Catalog) Apply(spec *v1alpha1.MetricsBackendSpec) {
	c.changing.Lock()
	defer c.changing.Unlock()
	srcs := newSources(spec.Sources)
	same := srcs.equal(c.sources)
	if !same {
		c.sources = srcs
	}
	old := make(map[string][]*activeRule, len(c.rules))
	if same {
		for _, r := range c.rules {
			old[r.path] = append(old[r.path], r)
		}
	}
	var next []*activeRule
	add := func(specs []v1alpha1.MetricRule, external bool) {
		for i := range specs {
			path := fmt.Sprintf("%s.rules[%d]", partPath[external], i)
			if known := old[path]; len(known) == 1 && reflect.DeepEqual(known[0].spec, specs[i]) {
				next = append(next, known[0])
				continue
			}
			next = append(next, &activeRule{rule: compile(specs[i], path, i, external, c.sources)})
		}
	}
	if spec.CustomMetrics != nil {
		add(spec.CustomMetrics.Rules, false)
	}
	if spec.ExternalMetrics != nil {
		add(spec.ExternalMetrics.Rules, true)
	}
	if same && slices.Equal(next, c.rules) {
		return
	}
	c.rules = next
	wanted := sets.New(c.selections()...)
	maps.DeleteFunc(c.discovered, func(s Selection, _ *discovered) bool { return !wanted.Has(s) })
	c.rebuild()
	if !same {
		c.updateDeclared(true)
	}
}

// partPath has the paths of the parts of the spec that have rules, by whether they are external.
var partPath = map[bool]string{false: "spec.customMetrics", true: "spec.externalMetrics"}

// SetResources sets the resources of the cluster.
func (c *Catalog) SetResources(x *restmapping.Mapper) {
	c.changing.Lock()
	defer c.changing.Unlock()
	c.index = x
	for i, r := range c.rules {
		// A copy, since readers may still use the old one with its index.
		c.rules[i] = &activeRule{rule: r.rule}
	}
	c.rebuild()
	c.updateDeclared(true)
}

// Selections returns the lookups that the rules need, sorted and without duplicates.
func (c *Catalog) Selections() []Selection {
	c.changing.Lock()
	defer c.changing.Unlock()
	return c.selections()
}

func (c *Catalog) selections() []Selection {
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
