// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
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
	slots  *semaphore.Weighted
	series *series.Discovery
	health health

	mu         sync.Mutex
	settings   *settings
	connection *connection
	// unread is since when a Secret has yet to be read; zero where none has.
	unread time.Time
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
	s := &Source{
		name: o.Name, secrets: o.Secrets, clock: o.Clock, dial: o.Dial,
		slots:    semaphore.NewWeighted(maxRequests),
		settings: cfg,
	}
	s.health.state.Name = o.Name
	s.health.doubt = make(chan struct{}, 1)
	s.series = series.NewDiscovery(s.lookup, o.Clock, cfg.discovery())
	return s, nil
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
	// Another tenant, or whom the server takes for one, has other series.
	moved := s.settings.endpoint != cfg.endpoint || !reflect.DeepEqual(s.settings.spec.Headers, cfg.spec.Headers) ||
		!reflect.DeepEqual(s.settings.spec.Authentication, cfg.spec.Authentication)
	s.settings = cfg
	s.series.Apply(cfg.discovery())
	s.health.doubtful()
	if moved {
		s.series.Restart()
	}
	return nil
}

// Run looks for series, and after the source's health, until the context ends. It is
// called once.
func (s *Source) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.series.Run(ctx) })
	running.Go(func() { s.watchHealth(ctx) })
	running.Wait()
	s.Close()
}

// maxUnread is how long the connection in force is used on while a Secret that the spec
// has begun to name has yet to be read: that takes the operator's change of a Role first.
const maxUnread = 30 * time.Second

// current returns the connection for the settings and the credentials of now.
func (s *Source) current() (*connection, *query.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := resolve(s.settings.spec, s.secrets)
	before := s.connection
	if errors.Is(err, errUnread) {
		if s.unread.IsZero() {
			s.unread = s.clock.Now()
		}
		// What another server says, or one to another tenant, is no answer, however.
		if before != nil && before.settings.sameData(s.settings) && s.clock.Since(s.unread) < maxUnread {
			return before, nil
		}
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	s.unread = time.Time{}
	if err != nil {
		return nil, failf(query.ReasonCredentials, "%s", err)
	}
	if before != nil && before.settings == s.settings && before.credentials.equal(c) {
		return before, nil
	}
	next, err := connect(s.settings, c, before, s.dial, s.clock)
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

// retire closes what a request leaves open of a connection that was replaced meanwhile.
func (s *Source) retire(n *connection) {
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
// The samples' times are those that the server gives, which is the instant of the
// evaluation: PromQL's results have no other. The data behind them may be older, by
// up to the server's lookback (5m by default) and the Window.
func (s *Source) Evaluate(ctx context.Context, expression string, at time.Time) (*query.Result, error) {
	answer := &query.Result{Time: at, Window: windowOf(expression)}
	err := s.ask(ctx, forQuery, func(ctx context.Context, n *connection) error {
		v := vector{at: at, limit: n.settings.maxSamples, remedy: n.settings.remedy()}
		warnings, err := n.call(ctx, pathQuery, url.Values{
			"query": {expression}, "time": {timestamp(at)}, "timeout": {serverTimeout(ctx)},
		}, n.settings.answer(), v.read)
		answer.Samples, answer.Warnings = v.samples, tidy(warnings, n.credentials)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// purpose is what a request is for.
type purpose int

const (
	forQuery purpose = iota
	forProbe
	forLook
)

// ask makes one request, and notes how the source does by it. Errors are *query.Failure.
func (s *Source) ask(ctx context.Context, why purpose, request func(context.Context, *connection) error) error {
	f := s.try(ctx, why, request)
	if f == nil || ctx.Err() == nil {
		// What a caller gave up says nothing of the source.
		if s.health.note(f, why == forProbe, s.clock.Now()) {
			s.series.Recovered()
		}
	}
	if f != nil {
		return f
	}
	return nil
}

// try makes a request in its turn, with the source's timeout or that of a look.
func (s *Source) try(ctx context.Context, why purpose, request func(context.Context, *connection) error) *query.Failure {
	n, f := s.current()
	if f != nil {
		return failureOf(s.name, nil, f)
	}
	if until := time.Unix(0, n.heldOff.Load()); s.clock.Now().Before(until) {
		return failureOf(s.name, nil, failf(query.ReasonBadStatus, "the server limits its clients; it is not asked until %s, as it said", until.UTC().Format(time.RFC3339)))
	}
	timeout := n.settings.timeout
	if why == forLook {
		timeout = n.settings.lookTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return failureOf(s.name, nil, failf(query.ReasonTimeout, "%d other requests were under way all the time: the source is slow, or is asked too much", maxRequests))
	}
	defer s.slots.Release(1)
	defer s.retire(n)
	if err := request(ctx, n); err != nil {
		return failureOf(s.name, n.credentials, err)
	}
	return nil
}

// serverTimeout is what is sent as `timeout`: a little less than is left, so that the
// server's own words are in time. Prometheus knows no fractions: 9.5s is an error.
func serverTimeout(ctx context.Context) string {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	left -= min(left/10, time.Second)
	if left >= time.Second {
		return left.Truncate(time.Second).String()
	}
	return max(left.Truncate(time.Millisecond), time.Millisecond).String()
}

// maxWarnings bounds the warnings of an answer.
const maxWarnings = 5

func tidy(warnings []string, c *credentials) []string {
	var tidied []string
	for _, w := range warnings[:min(len(warnings), maxWarnings)] {
		tidied = append(tidied, text.Line(c.redact(w), maxMessage))
	}
	return tidied
}
