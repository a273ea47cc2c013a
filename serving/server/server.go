// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server runs the metrics API groups in one generic API server: it reads the flags,
// watches the configuration, fills the store from informers and kubelets, and decides when a
// pod is ready.
package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/server/config"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/readiness"
	"github.com/metricsbackend/metrics-backend-operator/serving/server/report"
)

// Server is the serving component.
type Server struct {
	generic *genericapiserver.GenericAPIServer
	// background runs from before the port opens until after it has closed, so that data
	// stays fresh while the server drains.
	background []func(context.Context)
}

// New creates a server. It opens the port and reads --backend-file, but sends no request to
// kube-apiserver, which may be unavailable.
func New(o *Options, c clock.WithTicker) (*Server, error) {
	registerMetrics()
	client, err := o.clientConfig()
	if err != nil {
		return nil, err
	}
	versions, err := o.enabledVersions()
	if err != nil {
		return nil, err
	}
	recorder := newRecorder(versions, c)
	generic, authentication, err := o.genericConfig(recorder, c)
	if err != nil {
		return nil, err
	}
	initial, err := config.Load(o.BackendFile)
	if err != nil {
		return nil, err
	}
	p, err := o.newComponents(client, c, initial.Settings)
	if err != nil {
		return nil, err
	}
	watcher, err := config.NewWatcher(client, o.Backend, initial, p.target())
	if err != nil {
		return nil, err
	}
	gates := []readiness.Gate{
		authentication, p.informers, readiness.NewBackendGate(watcher.BackendApplied, watcher.ApplyDefaults, c), readiness.NewDeclaredGate(watcher.DeclaredApplied, c), readiness.NewScrapeTokenGate(p.hasScrapeToken),
		readiness.NewSourcesGate(p.pipeline.sources.ready, c), readiness.NewRatesGate(p.pipeline.resourceRules.hasRates, c, o.RatesTimeout),
	}
	if o.ServiceName != "" {
		name := types.NamespacedName{Namespace: o.ServiceNamespace, Name: o.ServiceName}
		service, err := readiness.NewService(client, name, o.Backend, o.PodIP, o.ServingCAFile)
		if err != nil {
			return nil, err
		}
		gates = append(gates, readiness.NewVersionsGate(service, versions, c))
	}
	ready := readiness.NewGates(gates...)

	generic.AddReadyzChecks(ready.HealthChecks()...)
	generic.AddHealthChecks(healthz.NamedCheck("kubelet-source", func(*http.Request) error { return p.kubelets.Alive(c.Now()) }))
	server, err := generic.Complete(nil).New("serving", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the generic API server: %w", err)
	}
	if err := p.install(versions, server, initial.Settings, time.Duration(generic.MinRequestTimeout)*time.Second); err != nil {
		return nil, err
	}
	for path, handler := range report.Handlers(p.pipeline.reporter(watcher.ObservedGeneration), recorder) {
		server.Handler.NonGoRestfulMux.Handle(path, handler)
	}
	ending := &drain{
		shuttingDown: generic.ShutdownInitiatedNotify(), delay: generic.ShutdownDelayDuration, clock: c,
		open: p.watches.quota.Open, end: p.watches.drain,
	}
	return &Server{generic: server, background: append(p.background(), ready.Run, watcher.Run, ending.run)}, nil
}

// Run serves until the context ends, and then completes running requests.
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
