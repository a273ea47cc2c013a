// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcerules feeds the store of resource metrics from a source instead of kubelets:
// it evaluates the resource rules each interval, and makes data points of the answers.
//
// No value is made up, and none is older than the answer that it was in:
//   - memory, which is of the moment, says which containers run. One that has a CPU
//     figure alone has ended: the figure is what is left of it in the window. One that
//     has memory alone has just begun, and its pod gets no new point until it has both;
//   - a container with two series, or with a figure that is no number, is not known, and
//     its pod gets no new point either;
//   - the time of a point is that of the evaluation, as the source gives it, and its
//     window is that of the rules.
package resourcerules

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Options are what a Feed is made of, for its lifetime.
type Options struct {
	// Store takes the points.
	Store *samplestore.Store
	Clock clock.WithTicker
	// Find returns the source of a name in spec.sources.
	Find func(name string) (query.Source, bool)
}

// Feed evaluates resource rules. Its methods may be called at any time, also before Run.
type Feed struct {
	store *samplestore.Store
	clock clock.WithTicker
	find  func(string) (query.Source, bool)
	wake  chan struct{}

	mu      sync.Mutex
	queries *rules.ResourceQueries
	// interrupt ends the round under way.
	interrupt context.CancelFunc
	// report is of the newest round with these queries.
	report Report
}

// Report is how the newest round went.
type Report struct {
	// Done says that there was one.
	Done bool
	// Nodes and Pods that have figures, of those that the cluster has.
	Nodes, Pods int
	// PodsAlone says that the rules are not for nodes.
	PodsAlone bool
	// Newest is the time of the newest point; zero where there is none.
	Newest metav1.Time
	// Problems are by path below spec.resourceMetrics.rules.
	Problems []v1alpha1.RuleHealth
}

// Complete says whether there are figures of all that the rules are for.
func (r *Report) Complete() bool { return r.Pods > 0 && (r.Nodes > 0 || r.PodsAlone) }

// New returns a feed that does nothing until it is given queries.
func New(o Options) *Feed {
	return &Feed{store: o.Store, clock: o.Clock, find: o.Find, wake: make(chan struct{}, 1)}
}

// Apply sets the queries, which are evaluated at once; nil ends the feed. The points
// that are in the store stay there until they are too old, or others are newer, so there
// is an answer at all times while kubelets take over, or are taken over from.
func (f *Feed) Apply(q *rules.ResourceQueries) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries, f.report = q, Report{}
	if f.interrupt != nil {
		// It may wait for a source that hangs, which the new queries do not ask.
		f.interrupt()
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Report returns how the newest round went.
func (f *Feed) Report() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.report
}

// Run evaluates until the context ends.
func (f *Feed) Run(ctx context.Context) {
	timer := f.clock.NewTimer(0)
	defer timer.Stop()
	// slotted says that it is a slot which the timer was for.
	slotted := false
	warm := warmUp
	for {
		select {
		case <-f.wake:
			// What it tells of is read now.
			warm = warmUp
		default:
		}
		f.mu.Lock()
		q := f.queries
		roundCtx, cancel := context.WithCancel(ctx)
		f.interrupt = cancel
		f.mu.Unlock()
		wait := idle
		if q != nil {
			at := f.clock.Now()
			if slotted {
				at = slotAt(q, at)
			}
			f.round(roundCtx, q, at)
			wait, slotted = nextSlot(q, at).Sub(f.clock.Now()), true
			if r := f.Report(); r.Complete() {
				warm = warmUp
			} else if wait > warm {
				// It may be what is known of the cluster that has yet to come.
				wait, slotted = warm, false
				warm *= 2
			}
		}
		cancel()
		timer.Reset(max(wait, 0))
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
			slotted, warm = false, warmUp
		case <-timer.C():
		}
	}
}

// warmUp is the time to the next round while none has figures of nodes and of pods. It
// doubles each time, up to the interval: there may never be any.
const warmUp = 5 * time.Second

// idle is how long Run sleeps without queries.
const idle = time.Hour

// nextSlot is when queries are evaluated next. Their place in the interval is the same on
// every replica, so that replicas give points of the same instants.
func nextSlot(q *rules.ResourceQueries, now time.Time) time.Time {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, q.Source, q.CPU.Containers, q.CPU.Nodes, q.Memory.Containers, q.Memory.Nodes)
	phase := time.Duration(float64(q.Interval) * float64(h.Sum32()) / (1 << 32)).Truncate(time.Millisecond)
	next := now.Truncate(q.Interval).Add(phase)
	for !next.After(now) {
		next = next.Add(q.Interval)
	}
	return next
}

// maxEarly is how much earlier than planned a timer may end, by the clock: those that are
// set right slowly run fast or slow for a while.
const maxEarly = 20 * time.Millisecond

// slotAt is the newest slot at an instant: timers are late, each by something else, and
// points are of the slot for all that.
func slotAt(q *rules.ResourceQueries, now time.Time) time.Time {
	return nextSlot(q, now.Add(maxEarly-q.Interval))
}

// round evaluates the queries for one instant and publishes what they say.
func (f *Feed) round(ctx context.Context, q *rules.ResourceQueries, at time.Time) {
	r := &round{queries: q, store: f.store, at: at.Truncate(time.Millisecond)}
	if source, found := f.find(q.Source); found {
		r.ask(ctx, source)
		if ctx.Err() != nil {
			return
		}
		r.publish()
	} else {
		r.problem("", v1alpha1.RuleFailing, string(query.ReasonUnknownSource), fmt.Sprintf("spec.sources has no source %q that can be asked", q.Source))
	}
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queries != q {
		// The rules have changed meanwhile; a round with the new ones begins now.
		return
	}
	r.report.Done, r.report.PodsAlone = true, !q.HasNodes()
	if r.report.Newest.IsZero() {
		r.report.Newest = f.report.Newest
	}
	f.report = r.report
}
