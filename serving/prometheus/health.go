// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
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
)

// health tracks whether a source answers queries. A query may also fail because it is invalid or
// too expensive: after failures that can be either, a probe decides. Its success counts only if
// queries and lookups of series do not fail nonetheless, and its failure only if no query succeeds.
type health struct {
	mu    sync.Mutex
	state v1alpha1.SourceHealth
	// answered is the time of the last successful response.
	answered time.Time
	// partial is the time of the last partial response.
	partial        time.Time
	queries        queryHealth
	probeRequested wake.Signal
}

// Health returns the health of the source. Before the first response it is unhealthy without a
// reason.
func (s *Source) Health() v1alpha1.SourceHealth {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.state
}

// record takes the result of a request: of q, if it is a query of a client. For a probe, lookups
// is why all lookups of series fail, if they do. It reports whether an unhealthy source has answered.
func (h *health) record(f *query.Failure, why purpose, q query.Query, lookups *query.Failure, now time.Time) (recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if why == forQuery {
		h.queries.record(q, f, now)
	}
	switch {
	case f == nil && h.state.Reason == string(query.ReasonPartialResponse) && now.Sub(h.partial) < partialTime:
		h.answered = now
	case f == nil:
		recovered = !h.state.Healthy
		h.answered = now
		failing := h.queries.failing(now)
		if failing == nil && !h.queries.succeeds(now) {
			failing = lookups
		}
		if failing != nil {
			h.set(false, failing.Reason, failing.Message, now)
		} else {
			h.set(true, "", "", now)
		}
	case why == forProbe && concernsSource(f.Reason), (why == forProbe || concernsSource(f.Reason)) && !h.queries.succeeds(now):
		h.set(false, f.Reason, f.Message, now)
	case f.Reason == query.ReasonPartialResponse:
		h.partial = now
		h.set(false, f.Reason, f.Message, now)
	}
	if f != nil && why != forProbe && f.Reason != query.ReasonRejected && h.state.Healthy {
		h.probeRequested.Set() // an unhealthy source is probed anyway
	}
	return recovered
}

// queriesSucceed reports whether a query of a client has succeeded lately.
func (h *health) queriesSucceed(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queries.succeeds(now)
}

// forget has the next success make the source healthy: the spec may name another server, or accept
// partial responses now.
func (h *health) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.partial, h.queries = time.Time{}, queryHealth{}
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
	due := probed.Add(failingProbeInterval)
	if next := h.answered.Add(healthyProbeInterval); h.state.Healthy && next.After(due) {
		return next
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
