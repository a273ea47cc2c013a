// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Options are what a Source is made of, for its lifetime.
type Options struct {
	// Name in spec.sources.
	Name string
	// Secrets gives the credentials; nil where the spec names none.
	Secrets Secrets
	// Clock tells the time.
	Clock clock.WithTicker
	// Dial opens connections; nil: as Go does by default.
	Dial dialFunc
}

// Source is a server with Prometheus' HTTP API. Its methods may be called at any
// time, also before Run.
type Source struct {
	name    string
	secrets Secrets
	clock   clock.WithTicker
	dial    dialFunc
	// slots bounds the requests under way, over one connection or many.
	slots *semaphore.Weighted

	mu         sync.Mutex
	settings   *settings
	connection *connection
}

var _ query.Source = (*Source)(nil)

// New returns a source. It fails when the spec cannot be used; a Secret that is
// missing or unusable is a failure of each request, until it is there.
func New(o Options, spec v1alpha1.PrometheusSource) (*Source, error) {
	if o.Name == "" || o.Clock == nil {
		return nil, errors.New("prometheus source: a name and a clock are needed")
	}
	cfg, err := settle(&spec)
	if err != nil {
		return nil, fmt.Errorf("source %q: prometheus.%w", o.Name, err)
	}
	return &Source{
		name: o.Name, secrets: o.Secrets, clock: o.Clock, dial: o.Dial,
		slots:    semaphore.NewWeighted(maxRequests),
		settings: cfg,
	}, nil
}

// Apply puts another spec in force, for requests from now on; those under way end as
// they began. On an error the old one stays.
func (s *Source) Apply(spec v1alpha1.PrometheusSource) error {
	cfg, err := settle(&spec)
	if err != nil {
		return fmt.Errorf("source %q: prometheus.%w", s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings = cfg
	return nil
}

// current returns the connection for the settings and the credentials of now.
func (s *Source) current() (*connection, *query.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := resolve(s.settings.spec, s.secrets)
	if err != nil {
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	before := s.connection
	if before != nil && before.settings == s.settings && before.credentials.equal(c) {
		return before, nil
	}
	next, err := connect(s.settings, c, before, s.dial)
	if err != nil {
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	if before != nil && before.transport != next.transport {
		// Requests under way are not touched by it.
		before.transport.CloseIdleConnections()
	}
	s.connection = next
	return next, nil
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
// The samples' times are those that the server gives, which is the instant of the
// evaluation: PromQL's results have no other. The data behind them may be older, by
// up to the server's lookback (5m by default) and the Window.
func (s *Source) Evaluate(ctx context.Context, expression string, at time.Time) (*query.Answer, error) {
	window, f := inspect(expression)
	if f != nil {
		return nil, failureOf(s.name, nil, f)
	}
	answer := &query.Answer{Time: at, Window: window}
	err := s.ask(ctx, func(ctx context.Context, n *connection, timeout time.Duration) error {
		value, warnings, err := n.api.Query(ctx, expression, at, promv1.WithTimeout(timeout))
		if err != nil {
			return err
		}
		samples, f := samplesOf(value, at)
		if f != nil {
			return f
		}
		answer.Samples, answer.Warnings = samples, tidy(warnings)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// ask makes one request with the source's timeout, in its turn.
func (s *Source) ask(ctx context.Context, request func(context.Context, *connection, time.Duration) error) error {
	n, f := s.current()
	if f != nil {
		return failureOf(s.name, nil, f)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.settings.timeout, errTimeout)
	defer cancel()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return failureOf(s.name, nil, failf(query.ReasonTimeout, "%d other requests were under way all the time: the source is slow, or is asked too much", maxRequests))
	}
	defer s.slots.Release(1)
	if err := request(ctx, n, serverTimeout(ctx)); err != nil {
		return failureOf(s.name, n.credentials, err)
	}
	return nil
}

// serverTimeout is what is sent as `timeout`: a little less than is left, so that the
// server's own words are in time. Prometheus knows no fractions: 9.5s is an error.
func serverTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	left -= min(left/10, time.Second)
	if left >= time.Second {
		return left.Truncate(time.Second)
	}
	return max(left.Truncate(time.Millisecond), time.Millisecond)
}

// maxWarnings bounds the warnings of an answer.
const maxWarnings = 5

func tidy(warnings []string) []string {
	var tidied []string
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		tidied = append(tidied, sanitise(w))
	}
	return tidied
}
