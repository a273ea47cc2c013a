// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// probeExpression is what every server with this API evaluates, whatever it
	// stores. Paths such as /-/ready are not part of the API, and would prove
	// neither the credentials nor the tenant.
	probeExpression = "vector(1)"
	// quietTime is how long after its last good answer a healthy source is asked
	// for its health.
	quietTime = 30 * time.Second
	// failingTime is the time between two probes of a source that fails.
	failingTime = 10 * time.Second
	// probeSpacing is the least time between two probes.
	probeSpacing = 2 * time.Second
)

// health is how a source does: whether it answers questions as such. A question that
// fails alone, by being wrong or too dear, is the question's failure. So those failures
// which could be either have the source probed, and the probe decides.
type health struct {
	mu    sync.Mutex
	state v1alpha1.SourceHealth
	// answered is the time of the newest good answer.
	answered time.Time
	// doubt asks for a probe.
	doubt chan struct{}
}

// Health returns how the source does. Before the first answer it is not healthy, and
// has no reason.
func (s *Source) Health() v1alpha1.SourceHealth {
	s.health.mu.Lock()
	defer s.health.mu.Unlock()
	return s.health.state
}

// note takes in how a request ended, and returns whether the source has begun to answer.
func (h *health) note(f *query.Failure, probe bool, now time.Time) (recovered bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case f == nil:
		recovered = !h.state.Healthy
		h.answered = now
		h.set(true, "", "", now)
	case probe:
		h.set(false, f.Reason, f.Message, now)
	case aboutSource(f.Reason):
		h.question()
		h.set(false, f.Reason, f.Message, now)
	case f.Reason != query.ReasonRejected:
		h.question()
	}
	return recovered
}

// aboutSource says whether no question at all can have an answer.
func aboutSource(r query.Reason) bool {
	return r == query.ReasonCredentials || r == query.ReasonConnectionFailed || r == query.ReasonCertificateUntrusted
}

func (h *health) set(healthy bool, reason query.Reason, message string, now time.Time) {
	if h.state.Since.IsZero() || h.state.Healthy != healthy || h.state.Reason != string(reason) {
		h.state.Since = metav1.Time{Time: now}
	}
	h.state.Healthy, h.state.Reason, h.state.Message = healthy, string(reason), message
}

// question has the source probed soon. One that fails is probed all the time.
func (h *health) question() {
	if h.state.Healthy {
		h.doubtful()
	}
}

func (h *health) doubtful() {
	select {
	case h.doubt <- struct{}{}:
	default:
	}
}

// due is when the source is to be probed, if nothing casts doubt on it before.
func (h *health) due(probed time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Healthy {
		return h.answered.Add(quietTime)
	}
	return probed.Add(failingTime)
}

// watchHealth probes the source at once, and then whenever its health is in doubt.
func (s *Source) watchHealth(ctx context.Context) {
	var probed time.Time
	due, doubted := s.clock.Now(), false
	timer := s.clock.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(max(due.Sub(s.clock.Now()), 0))
		select {
		case <-ctx.Done():
			return
		case <-s.health.doubt:
			doubted = true
			if soon := probed.Add(probeSpacing); soon.Before(due) {
				due = soon
			}
			continue
		case <-timer.C():
		}
		now := s.clock.Now()
		if next := s.health.due(probed); !doubted && next.After(now) {
			// It has answered somebody else since.
			due = next
			continue
		}
		s.probe(ctx, now)
		probed, doubted = now, false
		due = s.health.due(probed)
	}
}

func (s *Source) probe(ctx context.Context, at time.Time) {
	// The error is what Health tells.
	_ = s.ask(ctx, forProbe, func(ctx context.Context, n *connection) error {
		v := vector{at: at, limit: n.settings.maxSamples, remedy: n.settings.remedy()}
		_, err := n.call(ctx, pathQuery, url.Values{
			"query": {probeExpression}, "time": {timestamp(at)}, "timeout": {serverTimeout(ctx)},
		}, n.settings.answer(), v.read)
		return err
	})
}
