// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/selectorresolver"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// parts are what the API groups are answered from, and what keeps that going.
type parts struct {
	clock    clock.WithTicker
	store    *samplestore.Store
	source   *kubelet.Source
	ca       *kubeletCA
	feeds    syncGate
	watching *watches
	secrets  *secrets
	values   *valueMetrics
	objects  *selectorresolver.Resolver
	inForce  *configuration
}

func (o *Options) newParts(client *rest.Config, c clock.WithTicker, initial settings) (*parts, error) {
	p := &parts{clock: c, store: samplestore.NewStore(c, initial.maxAge)}
	admission := stream.NewAdmission(c, rand.Float64, initial.watch.limits)
	p.watching = &watches{admission: admission, streams: resourcemetrics.NewStreams(p.store, c, rand.Float64, admission, initial.watch.stream)}
	var err error
	if p.ca, err = newKubeletCA(o.KubeletCAFile, client); err != nil {
		return nil, err
	}
	if p.source, err = newSource(client, p.store, c, p.ca.content(), initial.kubelet); err != nil {
		return nil, err
	}
	p.ca.apply = p.source.SetDefaultCA
	if p.feeds, err = newFeeds(client, p.store, p.source); err != nil {
		return nil, err
	}
	if err := p.addValues(client, o.sourcesNamespace(initial), query.Limits{MaxWaiting: o.Run.MaxRequestsInFlight / 2}); err != nil {
		return nil, err
	}
	p.inForce = &configuration{source: p.source, store: p.store, watches: p.watching, values: p.values}
	return p, nil
}

// addValues adds what custom and external metrics are answered from.
func (p *parts) addValues(client *rest.Config, namespace string, limits query.Limits) error {
	typed, err := kubernetes.NewForConfig(withProtobuf(client))
	if err != nil {
		return fmt.Errorf("make a client of Secrets: %w", err)
	}
	resources, err := discovery.NewDiscoveryClientForConfig(client)
	if err != nil {
		return fmt.Errorf("make a client of discovery: %w", err)
	}
	// The resolver bounds what is under way; a rate for all (of 5 a second, by default)
	// would have one namespace's selectors keep others' waiting.
	unlimited := rest.CopyConfig(client)
	unlimited.QPS = -1
	partial, err := metadata.NewForConfig(unlimited)
	if err != nil {
		return fmt.Errorf("make a client of metadata: %w", err)
	}
	p.secrets = newSecrets(typed, namespace)
	p.values = newValueMetrics(resources, p.secrets, p.store, p.source, p.clock, limits)
	synced := func() bool { return p.feeds.Check(context.Background()) == nil }
	p.objects = selectorresolver.NewResolver(p.store.Pods, synced, partial, p.clock)
	return nil
}

// sourcesNamespace is where the Secrets of sources are: that of this pod or, where it is
// none, of the MetricsBackend.
func (o *Options) sourcesNamespace(initial settings) string {
	if o.ServiceNamespace != "" {
		return o.ServiceNamespace
	}
	return initial.spec.Namespace
}

// install adds the API groups in the versions that are enabled.
func (p *parts) install(o *Options, server *genericapiserver.GenericAPIServer, initial settings, minRequestTimeout time.Duration) error {
	enabled, err := o.enabledVersions()
	if err != nil {
		return err
	}
	if p.watching.group, err = resourcemetrics.InstallAPI(server, p.store, p.watching.streams, enabled.Has); err != nil {
		return err
	}
	p.watching.values, err = installValues(server, answering{
		custom: p.values.catalogue, external: p.values.catalogue, querier: p.values.evaluator, objects: p.objects, policies: p.values.policies,
		admission: p.watching.admission, settings: initial.watch.stream, clock: p.clock, minRequestTimeout: minRequestTimeout,
	}, enabled.Has)
	if err != nil {
		return err
	}
	p.values.inform(p.watching.values)
	p.watching.Apply(initial.watch)
	return nil
}

// background is what runs from before the port opens until after it has closed.
func (p *parts) background() []func(context.Context) {
	fresh := &freshness{source: p.values.figures, clock: p.clock}
	all := []func(context.Context){p.source.Run, p.ca.run, fresh.run, p.watching.streams.Run, p.secrets.run, p.values.run}
	for _, g := range p.watching.values {
		all = append(all, g.Run)
	}
	for _, f := range p.feeds {
		all = append(all, f.run)
	}
	return all
}
