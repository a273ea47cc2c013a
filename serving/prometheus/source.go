// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/rungroup"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Options configure a Source for its lifetime.
type Options struct {
	// Name in spec.sources.
	Name string
	// Secrets returns the credentials; nil if the spec references none.
	Secrets Secrets
	// ConfigMaps returns the CA certificates in ConfigMaps; nil if the spec references none.
	ConfigMaps ConfigMaps
	// ExtraCA returns serving.caConfigMap: where CA certificates are that are trusted beside the public ones; nil
	// for none.
	ExtraCA func() *v1alpha1.ConfigMapKeyReference
	// Tokens returns tokens of the ServiceAccount for sources; nil if the spec needs none.
	Tokens Tokens
	Clock  clock.WithTicker
	// Dial opens connections; nil for the default.
	Dial dialFunc
}

const (
	// withoutTimes is for how long an expression that failed with sample times is evaluated without.
	withoutTimes    = 10 * time.Minute
	maxWithoutTimes = 1000
)

// Source is a server with Prometheus' HTTP API. Its methods may be called at any time, also before
// Run.
type Source struct {
	options Options
	// requesting requests tokens of the authorization server.
	requesting rungroup.Group
	// slots limits concurrent requests over all connections.
	slots  *semaphore.Weighted
	series *series.Discovery
	health health
	// withoutTimes has the expressions that failed with sample times, as these cost the server more.
	withoutTimes *cache.LRUExpireCache

	mu         sync.Mutex
	settings   *settings
	connection *connection
	// issued are the tokens of the authorization server in settings for client; nil for none.
	issued *accounttoken.Source
	client *credentials
	stop   func()
	// pendingSince is since when a Secret has not been read yet; zero if all have.
	pendingSince time.Time
}

var _ query.Source = (*Source)(nil)

// New returns a source, or an error if the spec is invalid. If a Secret is missing or unusable,
// requests fail until it is there.
func New(o Options, spec v1alpha1.PrometheusSource) (*Source, error) {
	if o.Name == "" || o.Clock == nil {
		return nil, errors.New("prometheus source: a name and a clock are needed")
	}
	cfg, err := newSettings(&spec)
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", o.Name, err)
	}
	s := &Source{
		options: o, slots: semaphore.NewWeighted(maxRequests),
		settings: cfg, stop: func() {}, withoutTimes: cache.NewLRUExpireCacheWithClock(maxWithoutTimes, o.Clock),
	}
	s.health.state.Name = o.Name
	s.health.probeRequested = wake.NewSignal()
	s.series = series.NewDiscovery(s.lookup, o.Clock, cfg.discovery)
	return s, nil
}

// Apply replaces the spec for future requests. On an error the old one stays.
func (s *Source) Apply(spec v1alpha1.PrometheusSource) error {
	cfg, err := newSettings(&spec)
	if err != nil {
		return fmt.Errorf("source %q: %w", s.options.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Headers and credentials may select the tenant, which has other series, and parameters may filter them.
	otherSeries := s.settings.endpoint != cfg.endpoint || s.settings.parameters != cfg.parameters || !reflect.DeepEqual(s.settings.spec.Headers, cfg.spec.Headers) ||
		!reflect.DeepEqual(s.settings.spec.Authentication, cfg.spec.Authentication)
	if !reflect.DeepEqual(s.settings.spec.Authentication, cfg.spec.Authentication) {
		s.stop()
		s.issued = nil
	}
	s.settings = cfg
	s.series.Apply(cfg.discovery)
	s.health.forget()
	s.health.probeRequested.Set()
	if otherSeries {
		s.series.Restart()
	}
	return nil
}

// Run discovers series and probes the source's health until the context ends. It is called once.
func (s *Source) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.series.Run(ctx) })
	running.Go(func() { s.watchHealth(ctx) })
	running.Go(func() { s.requesting.Run(ctx) })
	running.Wait()
	s.Close()
}

// maxPending is how long the present connection is still used while a Secret that the spec newly
// references has not been read, or there is no token: the operator has to update a Role first.
const maxPending = 30 * time.Second

// current returns the connection for the present settings and credentials.
func (s *Source) current() (*connection, *query.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := resolve(s.settings.spec, &s.options, s.issuedTokens)
	before := s.connection
	if _, pending := errors.AsType[pendingError](err); pending {
		if s.pendingSince.IsZero() {
			s.pendingSince = s.options.Clock.Now()
		}
		// Results of another server or tenant would be wrong, though.
		if before != nil && before.settings.sameData(s.settings) && s.options.Clock.Since(s.pendingSince) < maxPending {
			return before, nil
		}
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	s.pendingSince = time.Time{}
	if err != nil {
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	if before != nil && before.settings == s.settings && before.credentials.equal(c) {
		return before, nil
	}
	next, err := newConnection(s.settings, c, before, s.options.Dial, s.options.Clock)
	if err != nil {
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	if before != nil && before.transport != next.transport {
		// Running requests are not affected.
		before.transport.CloseIdleConnections()
	}
	s.connection = next
	return next, nil
}

// closeReplaced closes the connections that a request leaves idle after they were replaced.
func (s *Source) closeReplaced(n *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connection.transport != n.transport {
		n.transport.CloseIdleConnections()
	}
}

// Close closes the connections that no request uses. Evaluate may still be called.
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.connection != nil {
		s.connection.transport.CloseIdleConnections()
	}
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
		return nil, failureOf(s.options.Name, nil, failf(query.ReasonRejected, "the times of the samples cannot be known of the query, as maxSampleAge requires, or are too long a query"))
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
			s.withoutTimes.Add(q.Expression, nil, withoutTimes)
			return s.evaluate(ctx, q, q.Expression, at)
		case query.ReasonTimeout, query.ReasonMalformed, query.ReasonBadStatus:
			s.withoutTimes.Add(q.Expression, nil, withoutTimes)
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
		if s.health.record(f, why, q, lookups, s.options.Clock.Now()) {
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
		return failureOf(s.options.Name, nil, f)
	}
	// Queries are held by tenant, before they come here.
	if at := time.Unix(0, n.retryAt[why].Load()); s.options.Clock.Now().Before(at) {
		return failureOf(s.options.Name, nil, failf(query.ReasonRateLimited, "it is not asked until %s, as it said (Retry-After): raise its limit there, or ask less", at.UTC().Format(time.RFC3339)))
	}
	timeout := n.settings.timeout
	if why == forSeries {
		timeout = n.settings.seriesTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return failureOf(s.options.Name, nil, failf(query.ReasonTimeout, "%d other requests were under way all the time: the source is slow, or is asked too much", maxRequests))
	}
	defer s.slots.Release(1)
	defer s.closeReplaced(n)
	err := request(ctx, n)
	if err == nil {
		return nil
	}
	f = failureOf(s.options.Name, n.credentials, err)
	if why != forQuery && f.RetryAfter > 0 {
		n.retryAt[why].Store(s.options.Clock.Now().Add(f.RetryAfter).UnixNano())
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

// maxWarnings limits the warnings of a result.
const maxWarnings = 5

func cleanWarnings(warnings []string, c *credentials) []string {
	var tidied []string
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		tidied = append(tidied, text.Line(c.redact(w), maxMessage))
	}
	return tidied
}
