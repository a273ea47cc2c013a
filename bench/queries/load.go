// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// load is the requests of a number of autoscalers to a server.
type load struct {
	server      *cluster.Server
	kind        kind
	autoscalers int
	client      *http.Client

	mu sync.Mutex
	// took has the durations of successful requests.
	took     figures.Durations
	failures []error
}

// measure sends a request of each autoscaler once per interval, each at its own offset,
// whether or not earlier requests were answered, and returns the figures from the second
// interval on: in the first, a new process connects, authorizes each user and evaluates each
// query for the first time. Requests that fail are in l.failures.
func (l *load) measure(ctx context.Context, e *environment, f *flags) (values, error) {
	l.client = &http.Client{Transport: &http.Transport{TLSClientConfig: l.server.TLS.Clone(), ForceAttemptHTTP2: true}}
	defer l.client.CloseIdleConnections()
	began := time.Now()
	var requests sync.WaitGroup
	for i := range l.autoscalers {
		requests.Go(func() { l.poll(ctx, f, i, began, &requests) })
	}
	if err := progress.Wait(ctx, time.Until(began.Add(f.interval))); err != nil {
		return nil, err
	}
	before, err := readCosts(ctx, e, l.server)
	if err != nil {
		return nil, err
	}
	if err := progress.Wait(ctx, time.Until(began.Add(f.interval*time.Duration(f.intervals)))); err != nil {
		return nil, err
	}
	after, err := readCosts(ctx, e, l.server)
	if err != nil {
		return nil, err
	}
	requests.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	v := after.since(before)
	v[queries] = float64(after.queries-before.queries) / float64(f.intervals-1)
	if v[rss], err = residentMemory(l.server); err != nil {
		return nil, err
	}
	l.settle(v)
	return v, nil
}

// poll sends the requests of one autoscaler.
func (l *load) poll(ctx context.Context, f *flags, autoscaler int, began time.Time, requests *sync.WaitGroup) {
	// Not at the ends of the interval, where queries are counted.
	offset := f.interval * time.Duration(2*autoscaler+1) / time.Duration(2*l.autoscalers)
	for turn := range f.intervals {
		if progress.Wait(ctx, time.Until(began.Add(offset+f.interval*time.Duration(turn)))) != nil {
			return
		}
		requests.Go(func() {
			// A response after the next request would be of no use.
			ctx, cancel := context.WithTimeoutCause(ctx, f.interval, fmt.Errorf("no response within %v", f.interval))
			defer cancel()
			sent := time.Now()
			err := get(ctx, l.client, "https://"+l.server.Address+l.kind.path(f, autoscaler))
			took := time.Since(sent)
			if turn == 0 {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if err != nil {
				l.failures = append(l.failures, err)
				return
			}
			l.took.Add(took)
		})
	}
}

// fewestP99 is the least number of requests of which there is a p99: of fewer it would be one of
// the two slowest.
const fewestP99 = 200

// settle adds the figures of all requests.
func (l *load) settle(v values) {
	v[requested] = float64(l.took.Len() + len(l.failures))
	v[failed] = float64(len(l.failures))
	if l.took.Len() == 0 {
		return
	}
	for name, q := range map[string]float64{p50: 0.5, p95: 0.95, p99: 0.99, slowest: 1} {
		if name != p99 || l.took.Len() >= fewestP99 {
			v[name] = l.took.Quantile(q).Seconds()
		}
	}
}

// get sends a request as an autoscaler, with the headers of a front proxy.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	header := cluster.Header("load:autoscalers", false)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", response.Status, body)
	}
	return err
}

// costs are processor times and queries so far.
type costs struct {
	at                          time.Time
	server, source, plane, load time.Duration
	queries                     int
	machine                     machine.Load
}

func readCosts(ctx context.Context, e *environment, server *cluster.Server) (c costs, err error) {
	if c.queries, err = e.prometheus.Queries(ctx); err != nil {
		return c, err
	}
	for pid, used := range map[int]*time.Duration{server.PID(): &c.server, e.prometheus.PID(): &c.source, e.apiserver: &c.plane} {
		if *used, err = machine.CPU(pid); err != nil {
			return c, err
		}
	}
	if c.load, err = machine.OwnCPU(); err != nil {
		return c, err
	}
	c.at = time.Now()
	c.machine, err = machine.ReadLoad()
	return c, err
}

// since returns the processors that were used since an earlier reading.
func (c costs) since(earlier costs) values {
	seconds := c.at.Sub(earlier.at).Seconds()
	share := func(now, then time.Duration) float64 { return (now - then).Seconds() / seconds }
	return values{
		cpu:           share(c.server, earlier.server),
		cpuPrometheus: share(c.source, earlier.source),
		cpuAPIServer:  share(c.plane, earlier.plane),
		cpuLoad:       share(c.load, earlier.load),
		busy:          c.machine.Since(earlier.machine),
	}
}

func residentMemory(server *cluster.Server) (float64, error) {
	bytes, err := machine.RSS(server.PID())
	return float64(bytes), err
}
