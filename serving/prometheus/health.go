// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/promql"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// probeExpression can be evaluated by every server with this API, whatever it stores.
	// Paths such as /-/ready are not part of the API, and need neither credentials nor tenant.
	probeExpression = "vector(1)"
	// healthyProbeInterval is the time from the last response of a healthy source to a probe.
	healthyProbeInterval = 30 * time.Second
	// failingProbeInterval is the time between two probes of an unhealthy source.
	failingProbeInterval = 10 * time.Second
	// minProbeInterval is the least time between two probes.
	minProbeInterval = 2 * time.Second
	// partialTime is how long a source is unhealthy after a partial response. Complete ones of other
	// queries, as of the probe, do not show that the missing part is back.
	partialTime = time.Minute
	// successTime is for how long a success counts, or two intervals of the query. A failure counts
	// twice as long: failing queries are repeated less often. Neither counts longer than maxCounted.
	successTime = time.Minute
	maxCounted  = 10 * time.Minute
	// maxFailed limits the failed queries that are kept: so many make the source unhealthy.
	maxFailed = 3
)

// health tracks whether a source answers queries. A query may also fail because it is invalid or
// too expensive: after failures that can be either, a probe decides. Its success counts unless the
// queries of clients, or all lookups of series, fail: many servers evaluate vector(1) without their
// storage. Its failure counts unless queries succeed.
type health struct {
	mu    sync.Mutex
	state v1alpha1.SourceHealth
	// answered is the time of the last successful response.
	answered time.Time
	// partial is the time of the last partial response.
	partial time.Time
	// succeeded is a query that did: the source works until succeededUntil, unless that query fails.
	succeeded      query.Query
	succeededUntil time.Time
	// failed are the newest queries that failed without any success since, at most maxFailed.
	failed []failedQuery
	// away says that a request has failed, and the source is unhealthy, since it last answered.
	away           bool
	probeRequested wake.Signal
}

type failedQuery struct {
	query.Query
	failure *query.Failure
	until   time.Time
}

// Health returns the health of the source. Before the first response it is unhealthy without a
// reason.
func (s *Source) Health() v1alpha1.SourceHealth {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.state
}

// record takes the result of a request: of q, if it is for a query, or of a probe while lookups is
// why all lookups of series fail. It reports whether an unhealthy source has answered.
func (h *health) record(f *query.Failure, why purpose, q query.Query, lookups *query.Failure, now time.Time) (recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why == forQuery {
		h.recordQuery(f, q, now)
	}
	works := now.Before(h.succeededUntil)
	switch {
	case f == nil && h.state.Reason == string(query.ReasonPartialResponse) && now.Sub(h.partial) < partialTime:
		h.answered = now
	case f == nil:
		recovered, h.away = h.away, false
		h.answered = now
		if why == forQuery && !works {
			break // it needs no storage
		}
		if failing := cmp.Or(h.failing(now), lookups); failing != nil && !works {
			h.set(false, failing.Reason, failing.Message, now)
		} else {
			h.set(true, "", "", now)
		}
	case why == forProbe:
		if !works || concernsSource(f.Reason) {
			h.set(false, f.Reason, f.Message, now)
		}
	case f.Reason == query.ReasonPartialResponse:
		h.partial = now
		h.set(false, f.Reason, f.Message, now)
	case f.Reason != query.ReasonRejected:
		if h.state.Healthy { // an unhealthy source is probed anyway
			h.probeRequested.Set()
		}
		if concernsSource(f.Reason) && f.Reason != query.ReasonConnectionFailed { // which one query may cause
			h.set(false, f.Reason, f.Message, now)
		}
	}
	h.away = h.away || f != nil && !h.state.Healthy
	return recovered
}

// recordQuery takes the result of a query.
func (h *health) recordQuery(f *query.Failure, q query.Query, now time.Time) {
	lasts := min(max(successTime, 2*q.Interval), maxCounted)
	switch {
	case f == nil && len(h.failed) == 0 && h.succeededUntil.Sub(now) > lasts/2: // there is nothing to prove
	case f == nil && !promql.ReadsSeries(q.Expression): // as the probe's, it needs no storage
	case f == nil:
		h.failed = nil
		// Another query's success is kept if it counts longer: a failure of this one does not end it.
		if until := now.Add(lasts); q == h.succeeded || until.After(h.succeededUntil) {
			h.succeeded, h.succeededUntil = q, until
		}
	case !f.Reason.SourceAnswered():
		if q == h.succeeded {
			h.succeededUntil = time.Time{}
		}
		h.failed = slices.DeleteFunc(h.failed, func(o failedQuery) bool { return o.Query == q })
		h.failed = append(h.failed, failedQuery{q, f, now.Add(min(2*lasts, maxCounted))})
		h.failed = h.failed[max(len(h.failed)-maxFailed, 0):]
	}
}

// failing returns the newest failure of queries if different ones fail, nil otherwise. Two that one
// namespace declares may both be wrong.
func (h *health) failing(now time.Time) *query.Failure {
	h.failed = slices.DeleteFunc(h.failed, func(o failedQuery) bool { return o.until.Before(now) })
	for i, o := range h.failed {
		last := h.failed[len(h.failed)-1]
		if i+1 == maxFailed || o.Query != last.Query && (o.Tenant != last.Tenant || !o.Declared || !last.Declared) {
			return last.failure
		}
	}
	return nil
}

// forget has the next probe decide: the spec may name another server, or accept partial responses now.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.partial, h.succeededUntil, h.failed = time.Time{}, time.Time{}, nil
}

// concernsSource reports whether a failure affects all queries.
func concernsSource(r query.Reason) bool {
	return r == query.ReasonCredentials || r == query.ReasonConnectionFailed || r == query.ReasonCertificateUntrusted
}

func (h *health) set(healthy bool, reason query.Reason, message string, now time.Time) {
	if h.state.Since.IsZero() || h.state.Healthy != healthy || h.state.Reason != string(reason) {
		h.state.Since = metav1.Time{Time: now}
	}
	h.state.Healthy, h.state.Reason, h.state.Message = healthy, string(reason), message
}

// due returns when the source is probed, unless a probe is requested before.
func (h *health) due(probed time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	due, quiet := probed.Add(failingProbeInterval), h.answered.Add(healthyProbeInterval)
	if h.state.Healthy && quiet.After(due) {
		return quiet
	}
	return due
}

// watchHealth probes the source at once, then when a probe is due or requested.
func (s *Source) watchHealth(ctx context.Context) {
	var probed time.Time
	due, requested := s.clock.Now(), false
	timer := s.clock.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(due.Sub(s.clock.Now()), 0))
		select {
		case <-ctx.Done():
			return
		case <-s.health.probeRequested:
			requested = true
			if soon := probed.Add(minProbeInterval); soon.Before(due) {
				due = soon
			}
			continue
		case <-timer.C():
		}
		now := s.clock.Now()
		if next := s.health.due(probed); !requested && next.After(now) {
			// Another request has succeeded since.
			due = next
			continue
		}
		s.probe(ctx, now)
		probed, requested = now, false
		due = s.health.due(probed)
	}
}

func (s *Source) probe(ctx context.Context, at time.Time) {
	// Health has the error.
	_ = s.request(ctx, forProbe, query.Query{}, func(ctx context.Context, n *connection) error {
		return n.query(ctx, query.Query{Expression: probeExpression}, at, &query.Result{})
	})
}
