// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/readiness"
)

// Server is the serving component: sources, store and API in one process.
type Server struct {
	generic *genericapiserver.GenericAPIServer
	// background runs from before the port opens until after it has closed, so
	// that answers stay fresh while the server drains.
	background []func(context.Context)
}

// New puts the parts together. It opens the port and reads --backend-file, but
// asks nothing of kube-apiserver, which may be away.
func New(o *Options, c clock.WithTicker) (*Server, error) {
	registerMetrics()
	client, err := o.clientConfig()
	if err != nil {
		return nil, err
	}
	recorder, err := o.newRecorder(c)
	if err != nil {
		return nil, err
	}
	config, authentication, err := o.genericConfig(recorder)
	if err != nil {
		return nil, err
	}
	begin, err := o.begin(c)
	if err != nil {
		return nil, err
	}
	p, err := o.newParts(client, c, begin.settings)
	if err != nil {
		return nil, err
	}
	reloadSuccessful.Set(1)
	follow, err := o.follow(client, begin, p)
	if err != nil {
		return nil, err
	}
	gates := []readiness.Gate{
		authentication, p.feeds, readiness.NewBackendGate(follow.read, c), readiness.NewDeclaredGate(follow.declared, c),
		readiness.NewSourcesGate(p.values.sources.waiting, c), readiness.NewRatesGate(p.values.figures.Primed, c, o.RatesTimeout),
	}
	if o.ServiceName != "" {
		versions, err := o.newVersionsGate(client, c)
		if err != nil {
			return nil, err
		}
		gates = append(gates, versions)
	}
	first := readiness.NewGates(gates...)

	config.AddReadyzChecks(first.HealthChecks()...)
	config.AddHealthChecks(healthz.NamedCheck("kubelet-source", func(*http.Request) error { return p.source.Alive(c.Now()) }))
	generic, err := config.Complete(nil).New("serving", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the generic API server: %w", err)
	}
	if err := p.install(o, generic, begin.settings, time.Duration(config.MinRequestTimeout)*time.Second); err != nil {
		return nil, err
	}
	mux := generic.Handler.NonGoRestfulMux
	mux.Handle(v1alpha1.SourcesPath, sourcesHandler(p.values.figures, p.values, p.inForce))
	mux.Handle(v1alpha1.DeclaredPath, declaredHandler(p.values))
	mux.Handle(v1alpha1.ConsumersPath, consumersHandler(recorder))

	ending := &drain{
		shuttingDown: config.ShutdownInitiatedNotify(), delay: config.ShutdownDelayDuration, clock: c,
		open: p.watching.admission.Open, end: p.watching.drain,
	}
	return &Server{generic: generic, background: slices.Concat(p.background(), []func(context.Context){first.Run, follow.run, ending.run})}, nil
}

// Run serves until the context ends, and then answers what is under way.
func (s *Server) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, run := range s.background {
		running.Go(func() { run(background) })
	}
	err := s.generic.PrepareRun().RunWithContext(ctx)
	stop()
	running.Wait()
	return err
}

// newSource makes the scrapes of kubelets.
func newSource(client *rest.Config, store *samplestore.Store, c clock.WithTicker, ca []byte, initial kubelet.Settings) (*kubelet.Source, error) {
	source, err := kubelet.NewSource(kubelet.Options{
		Store:      store,
		Clock:      c,
		Rand:       rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // Spreads load; keeps no secret.
		RestConfig: client,
		DefaultCA:  ca,
	}, initial)
	if err != nil {
		return nil, fmt.Errorf("set up the scrapes of kubelets (--kubelet-ca-file names other authorities): %w", err)
	}
	return source, nil
}

// newFeeds makes the informers of nodes and pods.
func newFeeds(client *rest.Config, store *samplestore.Store, source *kubelet.Source) (syncGate, error) {
	typed, err := kubernetes.NewForConfig(withProtobuf(client))
	if err != nil {
		return nil, fmt.Errorf("make a client of nodes: %w", err)
	}
	partial, err := metadata.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("make a client of pod metadata: %w", err)
	}
	nodes, err := newNodeFeed(typed, store.Nodes, source)
	if err != nil {
		return nil, err
	}
	pods, err := newPodFeed(partial, store.Pods)
	if err != nil {
		return nil, err
	}
	// The store keeps no points of pods that it does not know: scraped before, nodes would
	// have their rates, and lists of pods none until the next samples.
	nodes.after = pods.handled
	return syncGate{pods, nodes}, nil
}

// newVersionsGate makes the gate of a pod behind --service-name.
func (o *Options) newVersionsGate(client *rest.Config, c clock.PassiveClock) (readiness.Gate, error) {
	served, err := o.enabledVersions()
	if err != nil {
		return nil, err
	}
	name := types.NamespacedName{Namespace: o.ServiceNamespace, Name: o.ServiceName}
	service, err := readiness.NewService(client, name, o.Backend, o.PodIP, o.ServingCAFile)
	if err != nil {
		return nil, err
	}
	return readiness.NewVersionsGate(service, served, c), nil
}
