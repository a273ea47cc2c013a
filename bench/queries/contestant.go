// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
)

// Names of contestants in flags.
const (
	adapterDefaults = "adapter"
	adapterRaised   = "adapter-raised"
	servingName     = "serving"
	// routedName is serving in front of prometheus-adapter, to which its routes lead.
	routedName = "routed"
)

// contestant is what one column of a table is about.
type contestant struct{ name, column string }

// contestants in the order of their columns.
var contestants = []contestant{
	{adapterDefaults, "prometheus-adapter"},
	{adapterRaised, "prometheus-adapter, `--client-qps=1000`"},
	{servingName, "serving"},
}

// routed is measured on request, against adapter-raised: what it costs that a request is passed on.
var routed = contestant{routedName, "serving in front of prometheus-adapter, `--client-qps=1000`"}

// raisedLimits are flags of prometheus-adapter. It lists pods at kube-apiserver for each
// request for a custom metric, by default at most 5 times a second.
var raisedLimits = []string{"--client-qps=1000", "--client-burst=1000"}

// start starts a new process of a contestant, and waits until it serves the last metric of
// each kind.
func (e *environment) start(ctx context.Context, f *flags, one contestant) (server *cluster.Server, err error) {
	switch one.name {
	case servingName:
		var s *cluster.Serving
		if s, err = cluster.StartServing(e.plane, f.serving, fmt.Appendf(nil, manifest, e.prometheus.URL, f.interval), nil); err == nil {
			server = s.Server
		}
	case routedName:
		server, err = e.startRouted(ctx, f)
	case adapterRaised:
		server, err = cluster.StartPrometheusAdapter(e.plane, f.adapter, []byte(adapterConfig), e.prometheus.URL, raisedLimits...)
	default:
		server, err = cluster.StartPrometheusAdapter(e.plane, f.adapter, []byte(adapterConfig), e.prometheus.URL)
	}
	if err != nil {
		return nil, err
	}
	if err := waitForMetrics(ctx, f, server); err != nil {
		_ = server.Stop()
		return nil, err
	}
	return server, nil
}

// startRouted starts prometheus-adapter, and serving in front of it.
func (e *environment) startRouted(ctx context.Context, f *flags) (server *cluster.Server, err error) {
	if e.behind, err = cluster.StartPrometheusAdapter(e.plane, f.adapter, []byte(adapterConfig), e.prometheus.URL, raisedLimits...); err != nil {
		return nil, err
	}
	if err := waitForMetrics(ctx, f, e.behind); err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(e.behind.Address)
	if err != nil {
		return nil, err
	}
	flags, err := e.plane.AllowRoutes(ctx)
	if err != nil {
		return nil, err
	}
	s, err := cluster.StartServing(e.plane, f.serving, fmt.Appendf(nil, routedManifest, cluster.OtherNamespace, cluster.OtherService, port), nil, flags...)
	if err != nil {
		return nil, err
	}
	return s.Server, nil
}

// stopBehind stops what a routed contestant stands in front of, if there is anything.
func (e *environment) stopBehind() error {
	if e.behind == nil {
		return nil
	}
	err := e.behind.Stop()
	e.behind = nil
	return err
}

func waitForMetrics(ctx context.Context, f *flags, server *cluster.Server) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := server.WaitReady(ctx); err != nil {
		return err
	}
	for _, k := range kinds {
		var last error
		err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, last = server.Get(ctx, k.path(f, f.metrics-1))
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("wait for the last metric: %w: %w; the log is %s", err, last, server.Log())
		}
	}
	return nil
}

// binary is the path of the contestant's program.
func (c contestant) binary(f *flags) string {
	if c.name == servingName || c.name == routedName {
		return f.serving
	}
	return f.adapter
}
