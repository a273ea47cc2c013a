// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"sync"
	"sync/atomic"
	"time"
)

// follower is one who hears of each outcome of a question.
type follower struct {
	// mu is held while receive is called.
	mu      sync.Mutex
	stopped atomic.Bool
	// told is the version of the newest outcome that receive was called with.
	told    uint64
	receive func(*Result, error)
}

// delivery is what a follower is to be told.
type delivery struct {
	follower *follower
	outcome  *outcome
}

// deliver calls receive, unless it has had a newer outcome already.
func (f *follower) deliver(o *outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped.Load() || o.version <= f.told {
		return
	}
	f.told = o.version
	f.receive(o.answer, o.err)
}

// Follow implements Asker. Errors are Outages; one that lasts is told once an
// interval. receive may be called before Follow returns, and a call that is under way
// may outlast stop.
func (d *Evaluator) Subscribe(q Query, since time.Time, receive func(*Result, error)) (stop func()) {
	source, known := d.sources(q.Source)
	f := &follower{receive: receive}
	d.mu.Lock()
	defer d.unlock()
	now := d.clock.Now()
	if d.closed {
		d.outbox = append(d.outbox, delivery{f, &outcome{err: shuttingDown(q, now), version: 1}})
		return func() {}
	}
	h := d.questions[q]
	if h == nil {
		h = d.enter(q)
	}
	d.touch(h, now)
	h.share.remove(h)
	if h.followers == nil {
		h.followers = map[*follower]struct{}{}
		questionsFollowed.Inc()
	}
	h.followers[f] = struct{}{}
	h.behind = h.behind || h.isBehind(since)
	d.visit(h, source, known, now)
	// What was known before, or has become known just now.
	if o := h.outcome; o != nil && h.flight == nil {
		d.outbox = append(d.outbox, delivery{f, o})
	}
	var once sync.Once
	return func() { once.Do(func() { d.unfollow(h, f) }) }
}

func (d *Evaluator) unfollow(h *held, f *follower) {
	f.stopped.Store(true)
	d.mu.Lock()
	delete(h.followers, f)
	if len(h.followers) == 0 {
		h.followers = nil
		questionsFollowed.Dec()
		d.agenda.Remove(h)
		if d.questions[h.question] == h {
			h.asked = d.clock.Now()
			h.share.add(h)
		}
		if h.flight != nil {
			d.abandonUnwanted(h.flight)
		}
	}
	d.unlock()
}

// tell puts a question's outcome into the outbox.
func (d *Evaluator) tell(h *held) {
	for f := range h.followers {
		d.outbox = append(d.outbox, delivery{f, h.outcome})
	}
}

// visitDue looks at the followed questions that are due, and returns when the next
// one is; the zero time where there is none.
func (d *Evaluator) visitDue() time.Time {
	for {
		d.mu.Lock()
		now := d.clock.Now()
		h, ok := d.agenda.Peek()
		if next := d.agenda.NextDue(); !ok || next.After(now) {
			d.mu.Unlock()
			return next
		}
		d.agenda.Remove(h)
		name := h.question.Source
		d.mu.Unlock()
		// Not under the lock: it is foreign code.
		source, known := d.sources(name)
		d.mu.Lock()
		if len(h.followers) > 0 && !d.closed {
			d.visit(h, source, known, d.clock.Now())
		}
		d.unlock()
	}
}

// visit has a followed question evaluated, where its newest outcome does not hold any more,
// and sets when it is due again.
func (d *Evaluator) visit(h *held, source Source, known bool, now time.Time) {
	h.asked = now
	switch {
	case !known:
		d.settleUnknown(h, now)
	case h.flight != nil && h.flight.source == source:
	case d.current(h, source, now) != nil && (!h.behind || h.outcome.err != nil):
	default:
		d.launch(h, source, now)
	}
	d.schedule(h, now)
}

// retryPause is the least time between two looks at a question that fails.
const retryPause = time.Second

// schedule sets when a followed question is due: when its next slot begins, or when
// its failure is no longer shared.
func (d *Evaluator) schedule(h *held, now time.Time) {
	if len(h.followers) == 0 {
		return
	}
	due := now.Add(h.slots.untilNext(now))
	if h.flight == nil && h.outcome != nil && h.outcome.err != nil {
		again := h.retry
		if l := d.lines[h.question.Source]; l != nil {
			if until := l.suspended(h.question.Tenant); until.After(again) {
				again = until
			}
		}
		if least := now.Add(retryPause); again.Before(least) {
			again = least
		}
		if again.Before(due) {
			due = again
		}
	}
	d.agenda.Put(h, due)
	d.nudge()
}

// SourcesChanged has followed questions evaluated at once whose source has changed, and
// forgets sources that are gone. Without it they would wait for their next slot.
func (d *Evaluator) SourcesChanged() {
	d.mu.Lock()
	names := map[string]Source{}
	for q := range d.questions {
		names[q.Source] = nil
	}
	d.mu.Unlock()
	for name := range names {
		names[name], _ = d.sources(name)
	}
	d.mu.Lock()
	defer d.unlock()
	now := d.clock.Now()
	for h := range d.agenda.All() {
		source, seen := names[h.question.Source]
		if seen && (source != h.source || h.flight != nil && h.flight.source != source) {
			d.agenda.Put(h, now)
		}
	}
	d.nudge()
}
