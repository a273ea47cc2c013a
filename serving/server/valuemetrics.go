// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics/policy"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/resourcerules"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// credentialStore follows the Secrets that sources name.
type credentialStore interface {
	// get implements prometheus.Secrets.
	get(name string) (map[string][]byte, error)
	// follow follows these, too; keep follows no others any longer.
	follow(names []string) error
	keep(names []string)
}

// valueMetrics is all that custom and external metrics are answered from: sources, the
// metrics that rules and teams make of them, the evaluator that asks, and policies.
type valueMetrics struct {
	sources   *sourceSet
	catalogue *rules.Catalogue
	evaluator *query.Evaluator
	// asked is which of the declared metrics reports have asked for.
	queryLog  queryLog
	policies  *externalmetrics.Policies
	directory *restmapping.Directory
	// figures and poller are for resource rules, which ask the same sources.
	figures *resourceFigures
	poller  *resourcerules.Poller
	// secrets are those of the sources.
	secrets credentialStore

	// needed is closed once there is a source: without one nobody asks what the
	// cluster's resources are called.
	needed func()
	wanted chan struct{}
	// stale has an element while groups have yet to hear of a change.
	stale chan struct{}
	clock clock.Clock

	// learning is held while what a source knows of series is taken over.
	learning sync.Mutex

	mu sync.Mutex
	// groups hear of changes.
	groups []refreshing
	// policyError is what was wrong with the policies when that was last logged.
	policyError string
}

func newValueMetrics(resources restmapping.Discovery, secrets credentialStore, store *samplestore.Store, kubelets kubeletFigures, c clock.WithTicker, limits query.Limits) *valueMetrics {
	v := &valueMetrics{
		policies: externalmetrics.NewPolicies(), directory: restmapping.NewDirectory(resources, c),
		secrets: secrets, wanted: make(chan struct{}), stale: make(chan struct{}, 1), clock: c,
	}
	v.needed = sync.OnceFunc(func() { close(v.wanted) })
	v.catalogue = rules.NewCatalogue(v.directory)
	v.directory.OnChange(func(index *restmapping.Index) {
		v.catalogue.SetResources(index)
		v.refresh()
	})
	v.sources = &sourceSet{clock: c, secrets: secrets.get, observe: func(source, matcher string) {
		v.learn(source, matcher)
		v.refresh()
	}}
	v.poller = resourcerules.New(resourcerules.Options{Store: store, Clock: c, Find: v.sources.find})
	v.figures = &resourceFigures{kubelets: kubelets, poller: v.poller}
	v.evaluator = query.NewEvaluator(c, rand.Float64, v.sources.find, limits)
	return v
}

// run keeps everything going until the context ends.
func (v *valueMetrics) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { v.sources.run(ctx) })
	running.Go(func() { v.evaluator.Run(ctx) })
	running.Go(func() { v.poller.Run(ctx) })
	running.Go(func() { v.refreshGroups(ctx) })
	running.Go(func() {
		select {
		case <-ctx.Done():
		case <-v.wanted:
			v.directory.Run(ctx)
		}
	})
	running.Wait()
}

// apply puts a spec in force, whose defaults are set. errs are what is wrong with it;
// what they are about answers with that error, and nothing else suffers.
func (v *valueMetrics) apply(ctx context.Context, spec *v1alpha1.MetricsBackendSpec, errs field.ErrorList) {
	credentials := v1alpha1.SourceSecrets(spec.Sources)
	if err := v.secrets.follow(credentials); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot follow the Secrets of sources")
	}
	if len(spec.Sources) > 0 {
		v.needed()
	}
	// The sources first: rules are about them.
	v.sources.apply(ctx, spec.Sources, errs)
	// Not before nobody asks for them any longer.
	v.secrets.keep(credentials)
	v.evaluator.SourcesChanged()
	v.figures.apply(ctx, spec)
	v.catalogue.Apply(spec)
	matchers := map[string][]string{}
	selections := v.catalogue.Selections()
	for _, s := range selections {
		matchers[s.Source] = append(matchers[s.Source], s.Selector)
	}
	v.sources.follow(matchers)
	// What is known already does not become known again.
	for _, s := range selections {
		v.learn(s.Source, s.Selector)
	}
	v.refresh()
}

// ruled says that resource rules are in force.
func (v *valueMetrics) ruled() bool { return v.figures.byRules() }

// learn tells the catalogue what a source knows of series.
func (v *valueMetrics) learn(source, matcher string) {
	// What is read first is told first: the catalogue would keep the older of the two, as
	// discovery tells nothing again.
	v.learning.Lock()
	defer v.learning.Unlock()
	found, ok := v.sources.found(source, matcher)
	if !ok {
		return
	}
	v.catalogue.SetFound(rules.Selection{Source: source, Selector: matcher}, found)
}

// declare puts the metrics that teams declare in force.
func (v *valueMetrics) declare(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric) {
	v.catalogue.Declare(custom, external)
	v.refresh()
}

// govern puts policies in force. What of them does not compile denies, see policy.Compile.
func (v *valueMetrics) govern(ctx context.Context, objects []*v1alpha1.ExternalMetricsPolicy) {
	of := make([]v1alpha1.ExternalMetricsPolicy, len(objects))
	for i, o := range objects {
		of[i] = *o
	}
	set, err := policy.Compile(of)
	v.policies.Apply(set)
	v.mu.Lock()
	defer v.mu.Unlock()
	message := ""
	if err != nil {
		message = err.Error()
	}
	if message != "" && message != v.policyError {
		klog.FromContext(ctx).Error(err, "ExternalMetricsPolicies deny what they may have been meant for, since they cannot be used")
	}
	v.policyError = message
	invalidPolicies.Set(float64(countErrors(err)))
}

// countErrors counts the errors that errors.Join has joined.
func countErrors(err error) int {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 0
	}
	return len(joined.Unwrap())
}

// inform has groups hear of changes.
func (v *valueMetrics) inform(groups []watchedGroup) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, g := range groups {
		if r, ok := g.(refreshing); ok {
			v.groups = append(v.groups, r)
		}
	}
}

// refresh has the groups hear of a change: within refreshInterval, and once of all
// changes that come meanwhile. It does not wait.
func (v *valueMetrics) refresh() {
	select {
	case v.stale <- struct{}{}:
	default:
	}
}

// refreshInterval is the least time between two refreshes. Each reads every feed of
// every group anew, and a look at a source may bring news of each rule one by one.
const refreshInterval = time.Second

// refreshGroups keeps the groups up to date until the context ends.
func (v *valueMetrics) refreshGroups(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.stale:
			v.refreshNow()
		}
		select {
		case <-ctx.Done():
			return
		case <-v.clock.After(refreshInterval):
		}
	}
}

func (v *valueMetrics) refreshNow() {
	v.mu.Lock()
	groups := slices.Clone(v.groups)
	v.mu.Unlock()
	for _, g := range groups {
		g.Refresh()
	}
}

// maxRuleHealth is how many rules a report tells of.
const maxRuleHealth = 50

// report tells how sources and rules do.
func (v *valueMetrics) report(to *v1alpha1.SourceReport) {
	h := v.catalogue.Health()
	to.Sources = v.sources.health()
	// Those of resource metrics first: without them no autoscaler on CPU works. And what
	// fails before what works, so that many remarks never hide the one rule that is wrong.
	// Of remarks, what somebody asks for and does not get comes before what nobody may miss.
	problems, count, failing := v.figures.health()
	all := slices.Concat(problems, v.catalogue.QueryProblems(v.clock.Now(), answeredSince(to.Sources)), h.Rules)
	slices.SortStableFunc(all, func(a, b v1alpha1.RuleHealth) int { return cmp.Compare(a.State.Severity(), b.State.Severity()) })
	to.Rules = all[:min(len(all), maxRuleHealth)]
	to.RuleCount, to.FailingRules = h.Count+count, h.Failing+failing
	to.CustomMetrics, to.ExternalMetrics = h.CustomMetrics, h.ExternalMetrics
}

// answeredSince returns what says whether a source has been healthy since an instant.
func answeredSince(sources []v1alpha1.SourceHealth) func(string, time.Time) bool {
	return func(source string, at time.Time) bool {
		return slices.ContainsFunc(sources, func(s v1alpha1.SourceHealth) bool {
			return s.Name == source && s.Healthy && !s.Since.Time.After(at)
		})
	}
}
