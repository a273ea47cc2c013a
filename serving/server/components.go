// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/bodylimit"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
	"github.com/metricsbackend/metrics-backend-operator/serving/canary"
	"github.com/metricsbackend/metrics-backend-operator/serving/custommetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricsapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/selectorresolver"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// maxForeignBody bounds a response that kube-apiserver may pass on from an aggregated API:
// discovery, and objects that custom metrics describe.
const maxForeignBody = 32 << 20

// components provide the data of all API groups.
type components struct {
	clock     clock.WithTicker
	store     *samplestore.Store
	kubelets  *kubelet.Source
	kubeletCA *kubeletCA
	// tokens are those for kubelets, or nil if they get this process's own credentials.
	tokens    *accounttoken.Source
	informers informerGate
	watches   *watches
	pipeline  *metricPipeline
	// resourceMetrics tells whether resource metrics are available.
	resourceMetrics *availability
	resolver        *selectorresolver.Resolver
}

func (o *Options) newComponents(client *rest.Config, c clock.WithTicker, initial config.Settings) (*components, error) {
	p := &components{clock: c, store: samplestore.NewStore(c, initial.MaxAge)}
	quota := stream.NewQuota(c, rand.Float64, initial.Watch.Limits)
	p.watches = &watches{quota: quota, streams: resourcemetrics.NewStreams(p.store, c, rand.Float64, quota, initial.Watch.Stream)}
	var err error
	if p.kubeletCA, err = newKubeletCA(o.KubeletCAFile, client); err != nil {
		return nil, err
	}
	typed, err := kubernetes.NewForConfig(withProtobuf(client))
	if err != nil {
		return nil, fmt.Errorf("make a client of Secrets and tokens: %w", err)
	}
	if p.tokens, err = o.newScrapeTokens(typed.CoreV1(), c); err != nil {
		return nil, err
	}
	if p.kubelets, err = p.newKubeletSource(client, initial.Kubelet); err != nil {
		return nil, err
	}
	p.kubeletCA.apply = p.kubelets.SetDefaultCA
	if p.informers, err = newInformers(client, p.store, p.kubelets); err != nil {
		return nil, err
	}
	// The Secrets of sources are in the namespace of this pod or, outside a pod, of the
	// MetricsBackend.
	namespace := cmp.Or(o.ServiceNamespace, initial.Spec.Serving.Namespace)
	references := config.NewReferences(typed, namespace, func(t v1alpha1.SourceToken) *accounttoken.Source {
		// An account of its own: a source must not get the permissions of serving.
		account := types.NamespacedName{Namespace: namespace, Name: o.ServiceName + t.AccountSuffix}
		return accounttoken.New(typed.CoreV1(), account, t.Audience, c, rand.Float64)
	})
	if err := p.addPipeline(client, references, serviceAddresses(typed.CoreV1(), c), o.Run.MaxRequestsInFlight/2); err != nil {
		return nil, err
	}
	p.resourceMetrics = &availability{clock: c, timeout: o.RatesTimeout, hasRates: func() (bool, string) {
		if err := p.informers.Check(context.Background()); err != nil {
			return false, err.Error()
		}
		return p.pipeline.resourceRules.hasRates()
	}}
	p.resourceMetrics.collect(initial.ResourceMetrics)
	return p, nil
}

// newKubeletSource returns the scraper of kubelets.
func (p *components) newKubeletSource(client *rest.Config, initial kubelet.Settings) (*kubelet.Source, error) {
	options := kubelet.Options{
		Store:      p.store,
		Clock:      p.clock,
		RestConfig: client,
		DefaultCA:  p.kubeletCA.bundle,
	}
	if p.tokens != nil {
		options.Tokens = p.tokens
	}
	source, err := kubelet.NewSource(options, initial)
	if err != nil {
		return nil, fmt.Errorf("set up the scrapes of kubelets (--kubelet-ca-file names other authorities): %w", err)
	}
	return source, nil
}

// addPipeline adds what custom and external metrics need.
func (p *components) addPipeline(client *rest.Config, references *config.References, address metricsapi.Address, maxWaiting int) error {
	resources, err := discovery.NewDiscoveryClientForConfig(bodylimit.Config(client, maxForeignBody))
	if err != nil {
		return fmt.Errorf("make a client of discovery: %w", err)
	}
	// The resolver limits its concurrency; the default rate limit of 5 a second for all
	// would delay one namespace's selectors by another's.
	unlimited := bodylimit.Config(client, maxForeignBody)
	unlimited.QPS = -1
	partial, err := metadata.NewForConfig(unlimited)
	if err != nil {
		return fmt.Errorf("make a client of metadata: %w", err)
	}
	p.pipeline = newMetricPipeline(resources, references, p.store, p.kubelets, address, p.clock, maxWaiting)
	synced := func() bool { return p.informers.Check(context.Background()) == nil }
	p.resolver = selectorresolver.NewResolver(p.store.Pods, synced, partial, p.clock)
	return nil
}

// target returns what the configuration is applied to.
func (p *components) target() config.Target {
	return config.Target{Settings: p.applySettings, Metrics: p.pipeline.declare, Policies: p.pipeline.applyPolicies}
}

// applySettings applies all settings, or none if it returns an error.
func (p *components) applySettings(ctx context.Context, s config.Settings) error {
	if err := p.kubelets.Apply(p.pipeline.resourceRules.kubeletSettings(s)); err != nil {
		return fmt.Errorf("change how kubelets are asked: %w", err)
	}
	// Nothing below can fail.
	p.store.SetMaxAge(s.MaxAge)
	p.watches.apply(s.Watch)
	p.pipeline.apply(ctx, s.Spec)
	// Only now is it known whether rates come from kubelets or from rules.
	p.resourceMetrics.collect(s.ResourceMetrics)
	return nil
}

// install adds the enabled versions of the API groups to the API server.
func (p *components) install(versions sets.Set[schema.GroupVersion], server *genericapiserver.GenericAPIServer, initial config.Settings, minRequestTimeout time.Duration) error {
	var err error
	if p.watches.resource, err = resourcemetrics.InstallAPI(server, p.store, p.watches.streams, p.resourceMetrics.check, versions.Has); err != nil {
		return err
	}
	options := valueapi.Options{
		Enabled: versions.Has, Querier: p.pipeline.evaluator, Quota: p.watches.quota, Settings: initial.Watch.Stream, Clock: p.clock, Random: rand.Float64, MinRequestTimeout: minRequestTimeout,
	}
	custom, err := custommetrics.InstallAPI(server, custommetrics.Options{Metrics: p.pipeline.router, Objects: p.resolver, Options: options})
	if err != nil {
		return err
	}
	p.addValueGroup(custom)
	external, err := externalmetrics.InstallAPI(server, externalmetrics.Options{
		Metrics: p.pipeline.router, Policies: p.pipeline.policies, Options: options,
	})
	if err != nil {
		return err
	}
	p.addValueGroup(external)
	p.watches.apply(initial.Watch)
	return canary.InstallAPI(server)
}

// addValueGroup adds an API group, unless none of its versions is enabled.
func (p *components) addValueGroup(g *valueapi.Group) {
	if g == nil {
		return
	}
	p.watches.values = append(p.watches.values, g)
	p.pipeline.addGroup(g)
}

// background returns what runs from before the port opens until after it has closed.
func (p *components) background() []func(context.Context) {
	all := []func(context.Context){
		p.scrape, p.watches.streams.Run, p.pipeline.run,
		func(ctx context.Context) { p.kubeletCA.run(ctx, p.clock) },
		func(ctx context.Context) { updateNewestSample(ctx, p.clock, p.pipeline.resourceRules.report) },
	}
	if p.tokens != nil {
		all = append(all, p.tokens.Run)
	}
	for _, g := range p.watches.values {
		all = append(all, g.Run)
	}
	for _, i := range p.informers {
		all = append(all, i.run)
	}
	return all
}
