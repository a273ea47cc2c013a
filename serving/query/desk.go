// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

// Limits bound what a Desk takes of this process and of its sources. Zero stands
// for the default.
//
// No owner (see Question) gets more of anything than it leaves free: one alone may have
// half of a limit, and n of them leave one part in n+1 to others. So there is
// room for whoever asks for little, whatever another asks for.
type Limits struct {
	// Concurrency is the most evaluations of one source that are under way at a
	// time. Default: 10, which with two replicas is Prometheus' own limit.
	Concurrency int
	// MaxQueued is the most questions that wait for one source; more are refused
	// with ReasonOverloaded. Default: 1000.
	MaxQueued int
	// MaxWaiting is the most requests that wait for evaluations, of all sources; more are
	// refused with ReasonOverloaded at once, so that a source that hangs does not take
	// the places of all other requests to this process. Default: 200, half of what the
	// API server answers at a time.
	MaxWaiting int
	// MaxSamples is the most samples of an answer; a longer one is a failure with
	// ReasonTooLarge. Default: 50000.
	MaxSamples int
	// MaxHeldSamples is the most samples of all answers that are held together.
	// Default: 500000.
	MaxCachedSamples int
	// MaxHeldBytes is the most bytes of all expressions that are held together.
	// Expressions that are followed count, and are never refused. Default: 32Mi.
	MaxCachedBytes int
	// MaxQuestions is the most questions that are held. Questions that are followed
	// count, and are never refused. Default: 10000.
	MaxQueries int
	// IdleTime is for how long a question is held, at least, that nobody asks.
	// Default: 5m.
	IdleTime time.Duration
	// MaxAnswerAge is the age up to which a source's last answer is kept while the
	// source fails. Default: 24h, the longest that a fallback may ask for.
	MaxResultAge time.Duration
}

func (l Limits) withDefaults() Limits {
	set := func(n *int, usual int) {
		if *n <= 0 {
			*n = usual
		}
	}
	set(&l.Concurrency, 10)
	set(&l.MaxQueued, 1000)
	set(&l.MaxWaiting, 200)
	set(&l.MaxSamples, 50_000)
	set(&l.MaxCachedSamples, 500_000)
	set(&l.MaxCachedBytes, 32<<20)
	set(&l.MaxQueries, 10_000)
	if l.IdleTime <= 0 {
		l.IdleTime = 5 * time.Minute
	}
	if l.MaxResultAge <= 0 {
		l.MaxResultAge = 24 * time.Hour
	}
	return l
}

// Desk is the Asker: it puts each question to its source once an interval,
// however many ask or follow it.
//
// An interval is a slot of the wall clock whose beginning depends on the question
// alone (see slots), so replicas agree on it. The first who asks in a slot has the
// question evaluated as of that moment, and all others until the slot's end share
// the answer. A question that is followed is evaluated at the beginning of each
// slot, as of that instant, on each replica; only one that takes the place of another is
// evaluated as of now at first (FollowSince).
//
// A failure is shared for a shorter time: for one second, doubled with each
// failure in a row, at most for 30s or the interval, whichever is shorter. What the source
// has rejected is not asked again before an interval has passed. A source that
// fails altogether is asked one question at a time, see suspension.
//
// An evaluation that has begun goes on when those who asked for it have left: its answer
// is there for who asks next, so that a source is not asked again and again by
// clients that are less patient than it is slow.
type Evaluator struct {
	clock   clock.WithTicker
	random  func() float64
	sources func(name string) (Source, bool)
	limits  Limits

	// base is the context of all evaluations; it ends when Run does.
	base   context.Context
	cancel context.CancelFunc
	// wake has Run look at the agenda anew.
	wake chan struct{}

	mu        sync.Mutex
	logger    klog.Logger
	closed    bool
	questions map[Query]*held
	agenda    delayqueue.Queue[*held]
	lines     map[string]*line
	// shares are what owners hold, and total is what all of them do.
	shares map[string]*share
	total  holding
	// outbox is what followers are to be told once mu is free.
	outbox []delivery
}

var _ Querier = &Evaluator{}

// NewDesk returns a Desk. sources returns a source of spec.sources by its name; it is
// called for each question that is asked, and a source that differs (by ==) from
// the one that gave an answer makes that answer void. random returns numbers in
// [0, 1) and may be called by several goroutines. Run keeps the desk's time.
func NewEvaluator(c clock.WithTicker, random func() float64, sources func(name string) (Source, bool), limits Limits) *Evaluator {
	base, cancel := context.WithCancel(context.Background())
	return &Evaluator{
		clock: c, random: random, sources: sources, limits: limits.withDefaults(),
		base: base, cancel: cancel, wake: make(chan struct{}, 1), logger: klog.Background(),
		questions: map[Query]*held{}, lines: map[string]*line{}, shares: map[string]*share{},
	}
}

// Ask implements Asker. Its error is an Outage, unless the context has ended before.
func (d *Evaluator) Query(ctx context.Context, q Query) (*Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask source %q: %w", q.Source, err)
	}
	source, known := d.sources(q.Source)
	d.mu.Lock()
	now := d.clock.Now()
	if d.closed {
		d.unlock()
		return nil, shuttingDown(q, now)
	}
	h, err := d.hold(q, now)
	if err != nil {
		d.unlock()
		countAsked(askedRefused)
		return nil, err
	}
	d.touch(h, now)
	if !known {
		d.settleUnknown(h, now)
		err := h.outcome.err
		d.unlock()
		countAsked(askedRefused)
		return nil, err
	}
	if o := d.current(h, source, now); o != nil {
		d.unlock()
		countAsked(askedHit)
		return served(o.answer, now), o.err
	}
	if !fair(h.share.waiting, d.total.waiting, 1, d.limits.MaxWaiting) {
		err := h.outage(&Failure{Source: q.Source, Reason: ReasonOverloaded, Message: fmt.Sprintf(
			"%d requests wait for sources already, %d of them of %s: the sources answer too slowly for all that they are asked", d.total.waiting, h.share.waiting, called(q.Tenant))}, now)
		d.unlock()
		countAsked(askedRefused)
		return nil, err
	}
	f, how := h.flight, askedShared
	if f == nil || f.source != source {
		if f = d.launch(h, source, now); f == nil { //nolint:contextcheck // An evaluation is for all who ask, not for the first.
			err := h.outcome.err
			d.unlock()
			countAsked(askedRefused)
			return nil, err
		}
		how = askedMiss
	}
	f.waiters++
	own := h.share
	d.count(own, holding{waiting: 1})
	d.unlock()
	countAsked(how)
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.count(own, holding{waiting: -1})
	}()

	select {
	case <-f.done:
		return served(f.answer, d.clock.Now()), f.err
	case <-ctx.Done():
	}
	select {
	case <-f.done: // at the same moment
		return served(f.answer, d.clock.Now()), f.err
	default:
		return nil, d.leave(f, ctx.Err())
	}
}

// fair says whether an owner that has own of a total may have more of it: no more than
// it leaves free, rounded up.
func fair(own, total, more, limit int) bool { return own+more <= limit-(total+more)+1 }

// Newest returns what is known of a question already, without an evaluation: its
// newest answer or failure, or false where there is none.
func (d *Evaluator) Cached(q Query) (*Result, error, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.questions[q]
	if h == nil || h.outcome == nil {
		return nil, nil, false
	}
	return h.outcome.answer, h.outcome.err, true
}

// Run keeps the desk's time until the context ends; then all who wait are told
// so, and followers hear nothing any more.
func (d *Evaluator) Run(ctx context.Context) {
	d.mu.Lock()
	d.logger = klog.FromContext(ctx)
	d.mu.Unlock()
	defer d.close()
	sweep := d.clock.Now().Add(sweepInterval)
	for {
		now := d.clock.Now()
		if !now.Before(sweep) {
			d.sweep(now)
			sweep = now.Add(sweepInterval)
		}
		next := d.visitDue() //nolint:contextcheck // The desk's own context ends with this one.
		wait := sweep.Sub(d.clock.Now())
		if !next.IsZero() {
			wait = min(wait, next.Sub(d.clock.Now()))
		}
		timer := d.clock.NewTimer(max(wait, 0))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-d.wake:
			timer.Stop()
		}
	}
}

// close ends the evaluations that are under way.
func (d *Evaluator) close() {
	d.mu.Lock()
	defer d.unlock()
	d.closed = true
	d.cancel()
	for _, l := range d.lines {
		for f := l.first(nil); f != nil; f = l.first(nil) {
			l.remove(f)
			f.held.flight = nil
			f.end(nil, shuttingDown(f.held.question, d.clock.Now()))
		}
	}
}

// unlock frees mu and tells the followers what there is to tell. Each takes the
// newest of what comes to it, so the order of two calls does not matter.
func (d *Evaluator) unlock() {
	outbox := d.outbox
	d.outbox = nil
	d.mu.Unlock()
	for _, o := range outbox {
		o.follower.deliver(o.outcome)
	}
}

// nudge has Run look at the agenda anew.
func (d *Evaluator) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
