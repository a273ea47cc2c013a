// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

// valuesManifest is the rest of a backend's spec, given the URL of Prometheus and the interval.
const valuesManifest = `  sources:
  - name: prometheus
    prometheus: {url: %q, interval: %s}
  customMetrics:
    rules:
    - seriesQuery: '` + customMetric + `{namespace!="",pod!=""}'
      resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
      metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  externalMetrics:
    rules:
    - seriesQuery: '` + externalMetric + `{namespace!="",app!=""}'
      resources: {overrides: {namespace: {resource: namespace}}}
      metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (app)'
` + agedRules

// proxied are the results of clients of one API that go through kube-apiserver.
type proxied struct {
	api     string
	clients int
	way
	// grown is what kube-apiserver uses more than without these clients.
	grown cluster.InUse
}

// runProxied measures kube-apiserver with clients that watch and that poll through it, and
// returns its CPU without any, and the ages of values at watchers, too.
func runProxied(ctx context.Context, e *environment, f *flags, say progress.Say) (idle *measured, all []proxied, ages map[string]*figures.Ages, err error) {
	to, stop, err := e.startProxied(ctx, f, say)
	if err != nil {
		return nil, nil, nil, err
	}
	defer stop()
	if ages, err = runAges(ctx, e, f, to, say); err != nil {
		return nil, nil, nil, fmt.Errorf("ages of values: %w", err)
	}
	if idle, err = (&session{environment: e}).measure(ctx, f.idle); err != nil {
		return nil, nil, nil, err
	}
	for _, api := range []api{resource, custom, external} {
		for _, clients := range []int{f.clients, f.watches} {
			for _, interval := range []time.Duration{0, f.interval} {
				p := proxied{api: api.name, clients: clients, way: way{name: "watch", interval: interval}}
				if interval > 0 {
					p.name = fmt.Sprintf("poll, %v", interval)
				}
				if err := p.run(ctx, e, f, to, api); err != nil {
					return nil, nil, nil, fmt.Errorf("%d clients of %s, %s: %w", clients, api.name, p.name, err)
				}
				say("%d clients of %s, %s: kube-apiserver %.0f mCPU, %s, %.0f goroutines", clients, api.name, p.name,
					p.millicores(p.apiserver), figures.Mebibytes(int64(p.grown.Memory)), p.grown.Goroutines)
				all = append(all, p)
			}
		}
	}
	return idle, all, ages, nil
}

// startProxied starts a Prometheus, and serving with all three APIs, behind kube-apiserver.
func (e *environment) startProxied(ctx context.Context, f *flags, say progress.Say) (to endpoint, stop func(), err error) {
	exposed := meter.New()
	if err := exposed.Set(e.series()); err != nil {
		return to, nil, err
	}
	target := httptest.NewServer(exposed)
	stop = target.Close
	defer func() {
		if err != nil {
			stop()
		}
	}()
	prometheus, err := cluster.StartPrometheus(ctx, e.folder, target.URL, f.interval)
	if err != nil {
		return to, nil, err
	}
	stop = func() { _ = prometheus.Stop(); target.Close() }
	for _, metric := range []string{customMetric, externalMetric} {
		if err := prometheus.WaitFor(ctx, metric); err != nil {
			return to, nil, err
		}
	}
	if err := e.startServing(ctx, f, streamsDefault, fmt.Sprintf(valuesManifest, prometheus.URL, f.interval), say); err != nil {
		return to, nil, err
	}
	if err := e.plane.Register(ctx, e.serving.Server,
		schema.GroupVersion{Group: resource.name, Version: "v1"},
		schema.GroupVersion{Group: custom.name, Version: "v1beta2"},
		schema.GroupVersion{Group: external.name, Version: "v1beta1"}); err != nil {
		return to, nil, err
	}
	var names []string
	for i := range f.connections[0] {
		names = append(names, userName(proxiedSession, i))
	}
	clients, err := e.plane.NewClients(ctx, names...)
	if err != nil {
		return to, nil, err
	}
	return e.proxied(clients), stop, nil
}

// proxiedSession is the same for all measurements, since each account takes a request to create.
const proxiedSession = "client"

// series returns what Prometheus scrapes: a metric of each pod, and one of each application.
func (e *environment) series() string {
	var b strings.Builder
	for key := range e.pods {
		namespace, name, _ := strings.Cut(key, "/")
		fmt.Fprintf(&b, "%s{namespace=%q,pod=%q} 1\n", customMetric, namespace, name)
	}
	b.WriteString(agedSeries())
	for n := range len(e.fleet.Namespaces()) * appsPerNamespace {
		namespace, app := e.target(n)
		fmt.Fprintf(&b, "%s{namespace=%q,app=%q} 1\n", externalMetric, namespace, app)
	}
	return b.String()
}

func (p *proxied) run(ctx context.Context, e *environment, f *flags, to endpoint, api api) error {
	before, err := e.plane.InUse(ctx)
	if err != nil {
		return err
	}
	s, err := dial(ctx, e, to, api, proxiedSession, f.connections[0])
	if err != nil {
		return err
	}
	defer s.close()
	var during cluster.InUse
	// Evenly at the rate that a user may open watches, they would now and then exceed it.
	if err := p.measure(ctx, s, f, p.clients, 2*f.connectOver, func() (err error) {
		during, err = e.plane.InUse(ctx)
		return err
	}); err != nil {
		return err
	}
	p.grown = cluster.InUse{Memory: during.Memory - before.Memory, Goroutines: during.Goroutines - before.Goroutines}
	s.close()
	// kube-apiserver ends the requests to serving a moment after those of its clients.
	for {
		now, err := e.plane.InUse(ctx)
		if err != nil || now.Goroutines < before.Goroutines+float64(p.clients)/100+100 {
			return err
		}
		if err := progress.Wait(ctx, time.Second); err != nil {
			return fmt.Errorf("%.0f goroutines of kube-apiserver, and %.0f before: %w", now.Goroutines, before.Goroutines, err)
		}
	}
}

func reportProxied(out io.Writer, f *flags, idle *measured, all []proxied) {
	_, _ = fmt.Fprintf(out, "Clients through kube-apiserver, on %d connections; without any it uses %.0f mCPU, and serving %.0f mCPU\n\n",
		f.connections[0], idle.millicores(idle.apiserver), idle.millicores(idle.cpu))
	rows := [][]string{{"", "clients", "", "CPU of kube-apiserver", "memory of kube-apiserver", "goroutines of kube-apiserver", "CPU of serving", "objects sent a second", "bytes a second", "refused with 429", "the machine was busy"}}
	for _, p := range all {
		seconds := p.span.Seconds()
		rows = append(rows, []string{
			p.api, figures.Thousands(p.clients), p.name,
			fmt.Sprintf("%.0f mCPU", p.millicores(p.apiserver)),
			fmt.Sprintf("%s, %.1f KiB a client", figures.Mebibytes(int64(p.grown.Memory)), p.grown.Memory/float64(p.clients)/1024),
			fmt.Sprintf("%s, %.1f a client", figures.Thousands(int(p.grown.Goroutines)), p.grown.Goroutines/float64(p.clients)),
			fmt.Sprintf("%.0f mCPU", p.millicores(p.cpu)),
			fmt.Sprintf("%.0f", float64(p.events)/seconds),
			fmt.Sprintf("%.0f kB", float64(p.bytes)/seconds/1000),
			fmt.Sprint(p.refused),
			fmt.Sprintf("%.0f %%", 100*p.load),
		})
	}
	figures.Table(out, rows)
}
