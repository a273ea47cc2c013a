// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricsapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/resourcerules"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
	"github.com/metricsbackend/metrics-backend-operator/serving/routes"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/report"
)

// metricPipeline provides the values of custom and external metrics: from sources, by the
// metrics of rules and declared metrics, through the evaluator, restricted by policies.
type metricPipeline struct {
	sources *sourceRegistry
	// references are the Secrets and ConfigMaps that sources name.
	references *config.References
	catalog    *rules.Catalog
	// router is what API groups ask for metrics: those of catalog, and of other implementations.
	router    *routes.Router
	evaluator *query.Evaluator
	policies  *externalmetrics.Policies
	directory *restmapping.Directory
	// resourceRules and poller query the same sources for resource metrics.
	resourceRules *resourceRules
	poller        *resourcerules.Poller

	running rungroup.Group
	// hasSources runs the directory: until there is a source, discovery is not read.
	hasSources func()
	// changed is set while groups have to be refreshed.
	changed wake.Signal
	clock   clock.Clock

	// updatingSeries is held while series of a source are passed to the catalog.
	updatingSeries sync.Mutex

	mu sync.Mutex
	// hasSpec is set once there is a spec. Without its sources no declared metric is valid.
	hasSpec bool
	// groups are refreshed after changes.
	groups []refresher
	// policyError is the error of the policies that was logged last.
	policyError string
}

func newMetricPipeline(resources restmapping.Discovery, references *config.References, store *samplestore.Store, kubelets kubeletScraper, address metricsapi.Address, c clock.WithTicker, maxWaiting int) *metricPipeline {
	p := &metricPipeline{
		policies: externalmetrics.NewPolicies(), directory: restmapping.NewDirectory(resources, c),
		references: references, changed: wake.NewSignal(), clock: c,
	}
	p.hasSources = sync.OnceFunc(func() { p.running.Go(p.directory.Run) })
	p.catalog = rules.NewCatalog(p.directory, p.clock)
	p.router = routes.NewRouter(p.catalog, func(source string) []metav1.APIResource { return p.sources.resources(source) })
	p.directory.OnChange(func(mapper *restmapping.Mapper) {
		p.catalog.SetResources(mapper)
		p.changed.Set()
	})
	p.sources = &sourceRegistry{clock: c, secrets: references.Secrets.Get, configMaps: references.ConfigMaps.Get, tokens: references.Tokens(v1alpha1.SourceAccountSuffix), metricsAPITokens: references.Tokens(v1alpha1.MetricsAPIAccountSuffix), address: address, onSeries: func(source, matcher string) {
		p.updateSeries(source, matcher)
		p.changed.Set()
	}}
	p.poller = resourcerules.New(store, c, p.sources.find)
	p.resourceRules = &resourceRules{kubelets: kubelets, poller: p.poller}
	p.evaluator = query.NewEvaluator(c, rand.Float64, p.sources.find, maxWaiting)
	for _, run := range []func(context.Context){p.references.Run, p.sources.run, p.evaluator.Run, p.poller.Run, p.refreshGroups} {
		p.running.Go(run)
	}
	return p
}

// reporter returns the reports of this pipeline.
func (p *metricPipeline) reporter(observedGeneration func() int64) *report.Reporter {
	return &report.Reporter{
		Catalog: p.catalog, Evaluator: p.evaluator, Clock: p.clock, ObservedGeneration: observedGeneration,
		Kubelets: p.resourceRules.report, Sources: p.sources.health, ResourceRules: p.resourceRules.health, Routes: p.router.Health,
	}
}

// run runs all parts until the context ends.
func (p *metricPipeline) run(ctx context.Context) { p.running.Run(ctx) }

// apply applies a spec with its defaults.
func (p *metricPipeline) apply(ctx context.Context, spec *v1alpha1.MetricsBackendSpec) {
	p.references.Watch(spec) //nolint:contextcheck // Informers last as long as Run.
	if len(spec.Sources) > 0 {
		p.hasSources()
	}
	p.sources.extraCA.Store(spec.Serving.CAConfigMapKeyRef)
	// Sources first, since rules refer to them.
	p.sources.apply(spec.Sources) //nolint:contextcheck // Sources last as long as Run.
	// Only now is no other object in use.
	p.references.Retain(spec)
	p.evaluator.SourcesChanged()
	p.resourceRules.apply(ctx, spec)
	p.catalog.Apply(spec)
	p.router.Apply(spec)
	matchers := map[string][]string{}
	selections := p.catalog.Selections()
	for _, s := range selections {
		matchers[s.Source] = append(matchers[s.Source], s.Selector)
	}
	p.sources.setMatchers(matchers)
	// Sources do not report series again that they already know.
	for _, s := range selections {
		p.updateSeries(s.Source, s.Selector)
	}
	p.mu.Lock()
	p.hasSpec = true
	p.mu.Unlock()
	p.changed.Set()
}

// updateSeries passes the series that a source knows to the catalog.
func (p *metricPipeline) updateSeries(source, matcher string) {
	// The lock covers reading, too: otherwise the catalog could keep the older of two
	// results, as a source reports each change once.
	p.updatingSeries.Lock()
	defer p.updatingSeries.Unlock()
	found, ok := p.sources.series(source, matcher)
	if !ok {
		return
	}
	p.catalog.SetFound(rules.Selection{Source: source, Selector: matcher}, found)
}

// declare replaces the declared metrics.
func (p *metricPipeline) declare(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric) {
	p.catalog.Declare(custom, external)
	p.changed.Set()
}

// applyPolicies replaces the policies. Rules that do not compile deny, see policy.Compile.
func (p *metricPipeline) applyPolicies(ctx context.Context, objects []*v1alpha1.ExternalMetricsPolicy) {
	policies := make([]v1alpha1.ExternalMetricsPolicy, len(objects))
	for i, o := range objects {
		policies[i] = *o
	}
	set, err := policy.Compile(policies)
	p.policies.Apply(set)
	p.mu.Lock()
	defer p.mu.Unlock()
	message := ""
	if err != nil {
		message = err.Error()
	}
	if message != "" && message != p.policyError {
		klog.FromContext(ctx).Error(err, "ExternalMetricsPolicies deny what they may have been meant for, since they cannot be used")
	}
	p.policyError = message
	invalidPolicies.Set(float64(countErrors(err)))
}

// countErrors returns the number of errors joined by errors.Join.
func countErrors(err error) int {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 0
	}
	return len(joined.Unwrap())
}

// refresher is an API group whose metrics change.
type refresher interface {
	// Refresh applies a change of the metrics to open watches.
	Refresh()
}

// addGroup adds a group that is refreshed after changes.
func (p *metricPipeline) addGroup(g refresher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups = append(p.groups, g)
}

// refreshInterval is the minimum time between two refreshes. Each goes through everything
// that is watched, and a lookup of series may report the rules one by one.
const refreshInterval = time.Second

// refreshGroups refreshes the groups on request until the context ends, and reports invalid parts
// of the configuration.
func (p *metricPipeline) refreshGroups(ctx context.Context) {
	var invalid map[v1alpha1.RuleHealth]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
		p.mu.Lock()
		groups, hasSpec := slices.Clone(p.groups), p.hasSpec
		p.mu.Unlock()
		if hasSpec {
			invalid = p.reportInvalid(ctx, invalid)
		}
		for _, g := range groups {
			g.Refresh()
		}
		if !wake.Sleep(ctx, p.clock, refreshInterval) {
			return
		}
	}
}
