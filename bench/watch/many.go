// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// many are the results with many watches.
type many struct {
	watches, connections int
	// rssBefore is serving's memory without clients, rssIdle with all watches open,
	// rssAfter after some time with events.
	rssBefore, rssIdle, rssAfter int64
	// burst is for watches opened all at once, spread for those opened over a time.
	burst, spread connected
	delivering    *measured
	// before and after are serving's metrics before and after the events.
	before, after map[string]*dto.MetricFamily
	// idleCPU is serving's CPU usage without clients.
	idle *measured
}

// burstProfile is about as long as 10,000 watches take to open at once on two processors.
const burstProfile = 3 * time.Second

// connected are the results of opening watches.
type connected struct {
	over, took    time.Duration
	first, synced figures.Durations
}

// runMany opens the watches twice, all at once and spread over a time, and
// measures the second ones while they are open.
func runMany(ctx context.Context, e *environment, f *flags, connections int, say progress.Say) (*many, error) {
	m := &many{watches: f.watches, connections: connections}
	if err := e.startServing(ctx, f, f.watches/connections, "", say); err != nil {
		return nil, err
	}
	var err error
	empty := &session{environment: e}
	if m.idle, err = empty.measure(ctx, f.idle); err != nil {
		return nil, err
	}
	if m.rssBefore, err = machine.RSS(e.serving.PID()); err != nil {
		return nil, err
	}
	say("serving without clients: %s, %.0f mCPU", figures.Mebibytes(m.rssBefore), m.idle.millicores(m.idle.cpu))

	s, err := dial(ctx, e, e.direct(f), resource, "spread", connections)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if m.spread, err = connect(ctx, s, f.watches, f.connectOver); err != nil {
		return nil, err
	}
	say("%d watches opened within %v: first event p95 %v", f.watches, m.spread.took.Round(time.Millisecond), figures.Milliseconds(m.spread.first.Quantile(0.95)))
	if m.rssIdle, err = machine.RSS(e.serving.PID()); err != nil {
		return nil, err
	}
	if m.before, err = e.serving.Metrics(ctx); err != nil {
		return nil, err
	}
	wait := profile(ctx, e, f, fmt.Sprintf("watches-%d", connections), say,
		cluster.CPUProfile(f.measure-time.Second), cluster.HeapProfile, cluster.Profile{Name: "goroutine", Path: "goroutine"})
	if m.delivering, err = s.measure(ctx, f.measure); err != nil {
		return nil, err
	}
	if m.after, err = e.serving.Metrics(ctx, deliveryLatency, encodedPoints); err != nil {
		return nil, err
	}
	if m.rssAfter, err = machine.RSS(e.serving.PID()); err != nil {
		return nil, err
	}
	wait() // collects garbage for the profile of the heap
	say("%.0f events a second delivered, p99 %v", float64(m.delivering.events)/m.delivering.span.Seconds(), figures.Milliseconds(m.delivering.delivery.Quantile(0.99)))
	s.close()
	// Closing so many watches takes serving a while, which must not affect the next ones.
	if err := e.serving.WaitWatches(ctx, 0); err != nil {
		return nil, err
	}

	again, err := dial(ctx, e, e.direct(f), resource, "burst", connections)
	if err != nil {
		return nil, err
	}
	defer again.close()
	wait = profile(ctx, e, f, fmt.Sprintf("watches-%d-at-once", connections), say, cluster.CPUProfile(burstProfile))
	if m.burst, err = connect(ctx, again, f.watches, 0); err != nil {
		return nil, err
	}
	wait()
	say("%d watches opened at once, within %v: first event p95 %v", f.watches, m.burst.took.Round(time.Millisecond), figures.Milliseconds(m.burst.first.Quantile(0.95)))
	return m, nil
}

func connect(ctx context.Context, s *session, watches int, over time.Duration) (connected, error) {
	c := connected{over: over}
	began := time.Now()
	if err := s.watch(ctx, watches, over, false); err != nil {
		return c, err
	}
	c.took = time.Since(began)
	for _, t := range s.tallies {
		t.mu.Lock()
		c.first.Merge(&t.first)
		c.synced.Merge(&t.synced)
		t.mu.Unlock()
	}
	return c, nil
}
