// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

const (
	// withoutTimesFor is for how long an expression that failed with sample times is evaluated without, and
	// maxWithoutTimes limits such expressions.
	withoutTimesFor = 10 * time.Minute
	maxWithoutTimes = 1000
)

// Source is a server with Prometheus' HTTP API. Its methods may be called at any time, also before
// Run.
type Source struct {
	name   string
	clock  clock.WithTicker
	client *sourceclient.Client
	series *series.Discovery
	health health
	// withoutTimes has the expressions that failed with sample times, as these cost the server more.
	withoutTimes *cache.LRUExpireCache

	mu       sync.Mutex
	settings *settings
	// state is that of the present connection.
	state *connectionState
}

// connectionState is what a server asked for on a connection.
type connectionState struct {
	of *sourceclient.Connection
	// retryAt are the times of the last Retry-After in Unix nanoseconds, 0 for none: of lookups of
	// series, and of probes. That of a query is for its tenant, which the Evaluator holds.
	retryAt [purposes]atomic.Int64
	// postOnlyUntil is until when GET is not tried after a 403, in Unix nanoseconds.
	postOnlyUntil atomic.Int64
}

// connection is one for a request.
type connection struct {
	*sourceclient.Connection
	*connectionState
	settings *settings
	clock    clock.PassiveClock
}

var _ query.Source = (*Source)(nil)

// New returns a source, or an error if the spec is invalid. If a Secret is missing or unusable,
// requests fail until it is there.
func New(o sourceclient.Options, spec v1alpha1.PrometheusSource) (*Source, error) {
	if o.Name == "" || o.Clock == nil {
		return nil, errors.New("prometheus source: a name and a clock are needed")
	}
	cfg, err := newSettings(&spec)
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", o.Name, err)
	}
	s := &Source{
		name: o.Name, clock: o.Clock, settings: cfg, state: &connectionState{},
		withoutTimes: cache.NewLRUExpireCacheWithClock(maxWithoutTimes, o.Clock),
	}
	s.health.state.Name = o.Name
	s.health.probeRequested = wake.NewSignal()
	s.client = sourceclient.New(o, cfg.client, s.health.probeRequested.Set)
	s.series = series.NewDiscovery(s.lookup, o.Clock, cfg.discovery)
	return s, nil
}

// Apply replaces the spec for future requests. On an error the old one stays.
func (s *Source) Apply(spec v1alpha1.PrometheusSource) error {
	cfg, err := newSettings(&spec)
	if err != nil {
		return fmt.Errorf("source %q: %w", s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Headers and credentials may select the tenant, which has other series, and parameters may filter them.
	before, next := s.settings.client, cfg.client
	before.TLS, next.TLS = v1alpha1.SourceTLS{}, v1alpha1.SourceTLS{}
	s.settings = cfg
	s.client.Apply(cfg.client)
	s.series.Apply(cfg.discovery)
	s.health.forget()
	s.health.probeRequested.Set()
	if !reflect.DeepEqual(before, next) {
		s.series.Restart()
	}
	return nil
}

// Run discovers series and probes the source's health until the context ends. It is called once.
func (s *Source) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.series.Run(ctx) })
	running.Go(func() { s.watchHealth(ctx) })
	running.Go(func() { s.client.Run(ctx) })
	running.Wait()
	s.Close()
}

// Close closes the connections that no request uses. Evaluate may still be called.
func (s *Source) Close() { s.client.Close() }

// current returns the connection for the present settings and credentials.
func (s *Source) current() (*connection, *query.Failure) {
	n, f := s.client.Connection()
	if f != nil {
		return nil, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.of != n {
		s.state = &connectionState{of: n}
	}
	return &connection{Connection: n, connectionState: s.state, settings: s.settings, clock: s.clock}, nil
}

// Evaluate implements query.Source. Errors are *query.Failure.
//
// Results of PromQL have the time of the evaluation. The data may be older, by up to the server's lookback
// (5m by default) and the range of the expression. For SampleTimes the expression asks for those, too.
func (s *Source) Evaluate(ctx context.Context, q query.Query, at time.Time) (*query.Result, error) {
	required := q.SampleTimes == query.SampleTimesRequired
	_, failed := s.withoutTimes.Get(q.Expression)
	if q.SampleTimes == query.SampleTimesNotNeeded || failed && !required {
		return s.evaluate(ctx, q, q.Expression, at)
	}
	with, known := promql.WithSampleTimes(q.Expression, required)
	switch {
	case !known && required:
		return nil, sourceclient.FailureOf(s.name, nil, query.Failf(query.ReasonRejected, "maxSampleAge needs the times of the samples, which cannot be known of the query, or would make it too long"))
	case !known:
		return s.evaluate(ctx, q, q.Expression, at)
	}
	result, err := s.evaluate(ctx, q, with, at)
	if err == nil {
		result.ReadSampleTimes(promql.SampleTimeLabel)
		return result, nil
	}
	if f, _ := errors.AsType[*query.Failure](err); !required {
		switch f.Reason {
		case query.ReasonRejected, query.ReasonTooLarge:
			// The server may accept the query itself, or its result is small enough.
			s.withoutTimes.Add(q.Expression, nil, withoutTimesFor)
			return s.evaluate(ctx, q, q.Expression, at)
		case query.ReasonTimeout, query.ReasonMalformed, query.ReasonBadStatus:
			s.withoutTimes.Add(q.Expression, nil, withoutTimesFor)
		}
	}
	return nil, err
}

// evaluate evaluates the expression of a query, or one that yields more.
func (s *Source) evaluate(ctx context.Context, q query.Query, expression string, at time.Time) (*query.Result, error) {
	result := &query.Result{Time: at}
	q.SampleTimes = query.SampleTimesNotNeeded // for the health, it is the same query
	err := s.request(ctx, forQuery, q, func(ctx context.Context, n *connection) error {
		q.Expression = expression
		return n.query(ctx, q, at, result)
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

type purpose int

const (
	forQuery purpose = iota
	forProbe
	forSeries
	purposes
)

// request makes one request, of q if it is for a query, and records its result. Errors are *query.Failure.
func (s *Source) request(ctx context.Context, why purpose, q query.Query, request func(context.Context, *connection) error) error {
	f := s.send(ctx, why, request)
	if f == nil || ctx.Err() == nil {
		// A canceled request says nothing about the source.
		var lookups *query.Failure
		if why == forProbe {
			lookups = s.series.Failing()
		}
		if s.health.record(f, why, q, lookups, s.clock.Now()) {
			s.series.Recovered()
		}
	}
	if f != nil {
		return f
	}
	return nil
}

// send makes a request once a slot is free, with the timeout for its purpose.
func (s *Source) send(ctx context.Context, why purpose, request func(context.Context, *connection) error) *query.Failure {
	n, f := s.current()
	if f != nil {
		return sourceclient.FailureOf(s.name, nil, f)
	}
	// Queries are held by tenant, before they come here.
	if at := time.Unix(0, n.retryAt[why].Load()); s.clock.Now().Before(at) {
		return sourceclient.FailureOf(s.name, nil, query.Failf(query.ReasonRateLimited, "it is not asked until %s, as it said (Retry-After): raise its limit there, or ask less", at.UTC().Format(time.RFC3339)))
	}
	timeout := n.settings.timeout
	if why == forSeries {
		timeout = n.settings.seriesTimeout
	}
	f = s.client.Do(ctx, n.Connection, timeout, func(ctx context.Context) error { return request(ctx, n) })
	if f != nil && why != forQuery && f.RetryAfter > 0 {
		n.retryAt[why].Store(s.clock.Now().Add(f.RetryAfter).UnixNano())
	}
	return f
}

// serverTimeout returns the parameter `timeout`: a little less than what is left, so that the
// server's own error arrives in time. Prometheus accepts no fractions, such as 9.5s.
func serverTimeout(ctx context.Context) string {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	left -= min(left/10, time.Second)
	if left >= time.Second {
		return left.Truncate(time.Second).String()
	}
	return max(left.Truncate(time.Millisecond), time.Millisecond).String()
}
