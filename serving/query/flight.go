// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/klog/v2"
)

// flight is one evaluation, from when it is wanted until it ends.
type flight struct {
	held   *held
	source Source
	line   *line
	lane   *lane
	// began is when it was put to the source.
	began time.Time
	// at is the instant for which the question is evaluated, and slot the one in
	// which that is.
	at   time.Time
	slot int64

	// waiters counts those who asked and have not left.
	waiters int
	// queued is its place in the queue; nil once it runs.
	queued *list.Element
	cancel context.CancelFunc
	// abandoned says that nobody wants the answer any more.
	abandoned bool

	// done is closed when answer and err are set.
	done   chan struct{}
	answer *Result
	err    error
}

func (f *flight) end(answer *Result, err error) {
	f.answer, f.err = answer, err
	close(f.done)
}

// launch begins an evaluation, or queues it. It returns nil where the question fails
// at once, which is then its outcome.
func (d *Evaluator) launch(h *held, source Source, now time.Time) *flight {
	l := d.line(h.question.Source, source)
	if h.source != source {
		// What another source said, or failed to say, is nothing to fall back on.
		d.dropLast(h)
		h.attempts, h.failures = 0, 0
	}
	d.detach(h)
	slot, _ := h.slots.at(now)
	f := &flight{held: h, source: source, line: l, lane: l.lane(h.question.Tenant), done: make(chan struct{})}
	if failure := l.admit(f, now); failure != nil {
		d.refuse(h, source, slot, failure, now)
		return nil
	}
	if !d.room(l, f.lane) {
		if own := f.lane.queue.Len(); !fair(own, l.queued, 1, d.limits.MaxQueued) {
			l.release(f)
			d.refuse(h, source, slot, &Failure{Source: l.name, Reason: ReasonOverloaded, Message: fmt.Sprintf(
				"%d questions wait for this source already, %d of them of %s: it answers too slowly for all that it is asked", l.queued, own, called(f.lane.owner))}, now)
			return nil
		}
		h.flight = f
		l.push(f)
		return f
	}
	h.flight = f
	d.start(f, now)
	return f
}

// detach has a flight of a source that was replaced, or taken away, go on for those who wait
// for it, and for nobody else.
func (d *Evaluator) detach(h *held) {
	old := h.flight
	if old == nil {
		return
	}
	h.flight = nil
	d.abandonUnwanted(old)
}

// maxEvaluation ends evaluations of sources that have no timeout of their own, or a longer
// one: followers would wait for ever.
const maxEvaluation = 2 * time.Minute

// start has a flight evaluated.
func (d *Evaluator) start(f *flight, now time.Time) {
	var began time.Time
	f.slot, began = f.held.slots.at(now)
	f.at = time.UnixMilli(now.UnixMilli())
	if len(f.held.followers) > 0 && !f.held.behind {
		f.at = began
	}
	f.line.begin(f, now)
	var ctx context.Context
	ctx, f.cancel = context.WithTimeout(klog.NewContext(d.base, d.logger), maxEvaluation)
	go d.evaluate(ctx, f)
}

func (d *Evaluator) evaluate(ctx context.Context, f *flight) {
	defer f.cancel()
	began := d.clock.Now()
	answer, err := put(ctx, f.source, f.held.question.Expression, f.at)
	var failure *Failure
	switch {
	case err != nil:
		failure = failureOf(f.line.name, err)
	case answer == nil:
		failure = &Failure{Source: f.line.name, Reason: ReasonInternal, Message: "the source gave neither an answer nor an error"}
	case len(answer.Samples) > d.limits.MaxSamples:
		failure = &Failure{Source: f.line.name, Reason: ReasonTooLarge, Message: fmt.Sprintf(
			"the answer has %d samples, and may have %d: aggregate in the query", len(answer.Samples), d.limits.MaxSamples)}
	case answer.Time.IsZero():
		answer = &Result{Time: f.at, Window: answer.Window, Samples: answer.Samples, Warnings: answer.Warnings}
	}
	d.complete(f, answer, failure, began) //nolint:contextcheck // Others' evaluations are not part of this one.
}

// put asks a source. A source that panics has failed, and nothing else has.
func put(ctx context.Context, source Source, expression string, at time.Time) (answer *Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "A source panicked", "panic", p, "expression", expression, "stack", string(debug.Stack()))
			err = &panicked{p}
		}
	}()
	return source.Evaluate(ctx, expression, at)
}

// complete takes in what came of an evaluation, and begins those that wait.
func (d *Evaluator) complete(f *flight, answer *Result, failure *Failure, began time.Time) {
	d.mu.Lock()
	defer d.unlock()
	now := d.clock.Now()
	f.line.end(f, failure, now.Sub(began))
	if d.closed {
		if !f.abandoned {
			f.held.flight = nil
			f.end(nil, shuttingDown(f.held.question, now))
		}
		return
	}
	if !f.abandoned {
		d.observe(f, failure, now)
		d.finish(f, answer, failure, now)
	}
	d.advance(f.line, now)
}

// finish gives a flight's result to all who want it.
func (d *Evaluator) finish(f *flight, answer *Result, failure *Failure, now time.Time) {
	h := f.held
	if h.flight != f {
		// The source was replaced meanwhile: this is for those who waited for it.
		if failure != nil {
			f.end(nil, h.outage(failure, now))
		} else {
			f.end(answer, nil)
		}
		return
	}
	h.flight = nil
	if failure == nil {
		failure = d.keep(h, answer)
	}
	if failure != nil {
		h.attempts++
		h.retry = now.Add(d.shared(h, failure.Reason))
		d.fail(h, f.source, f.slot, failure, now)
	} else {
		h.attempts, h.failures, h.retry = 0, 0, time.Time{}
		h.settle(f.source, f.slot, answer, nil)
		if f.waiters == 0 && len(h.followers) == 0 {
			h.outcome.until = now.Add(h.slots.length())
		}
		d.tell(h)
	}
	f.end(h.outcome.answer, h.outcome.err)
	d.schedule(h, now)
}

// fail is the outcome of a question that failed.
func (d *Evaluator) fail(h *held, source Source, slot int64, failure *Failure, now time.Time) {
	h.fail(source, slot, failure, now)
	d.tell(h)
}

// refuse is the outcome of a question that was not evaluated. It is not shared: who
// asks next may not be refused. Followers hear of it once a slot.
func (d *Evaluator) refuse(h *held, source Source, slot int64, failure *Failure, now time.Time) {
	h.retry = time.Time{}
	if o := h.outcome; o == nil || o.err == nil || h.source != source || h.failedSlot != slot {
		d.fail(h, source, slot, failure, now)
	}
}

// settleUnknown fails a question whose source there is no longer.
func (d *Evaluator) settleUnknown(h *held, now time.Time) {
	d.dropLast(h)
	d.detach(h)
	slot, _ := h.slots.at(now)
	d.refuse(h, nil, slot, &Failure{Source: h.question.Source, Reason: ReasonUnknownSource,
		Message: "spec.sources of the MetricsBackend has no source of this name"}, now)
}

// maxShared is the longest that a failure is shared.
const maxShared = 30 * time.Second

// shared returns for how long a failure is shared.
func (d *Evaluator) shared(h *held, reason Reason) time.Duration {
	interval := h.slots.length()
	if reason == ReasonRejected || reason == ReasonTooLarge {
		return interval
	}
	return min(backoff(h.attempts, d.random()), interval)
}

// backoff is a time that doubles from one second to 30, less up to a quarter by
// chance so that replicas do not keep step.
func backoff(n int, random float64) time.Duration {
	d := min(time.Second<<min(n-1, 10), maxShared)
	return time.Duration((1 - 0.25*random) * float64(d))
}

// leave is for one who asked and no longer waits. It returns what to tell them.
func (d *Evaluator) leave(f *flight, cause error) error {
	d.mu.Lock()
	defer d.unlock()
	select {
	case <-f.done: // at the same moment
	default:
		f.waiters--
		d.abandonUnwanted(f)
	}
	now := d.clock.Now()
	o := f.held.outage(&Failure{Source: f.line.name, Reason: ReasonTimeout,
		Message: fmt.Sprintf("no answer before the request ended; %d evaluations of this source are under way and %d wait", f.line.running, f.line.queued)}, now)
	o.cause = cause
	return o
}

// abandonUnwanted cancels an evaluation that nobody wants any more, unless it has begun:
// its answer is there for who asks next. Of a source that was replaced it is not.
func (d *Evaluator) abandonUnwanted(f *flight) {
	h := f.held
	if f.waiters > 0 || f.abandoned || (h.flight == f && (f.queued == nil || len(h.followers) > 0)) {
		return
	}
	f.abandoned = true
	if f.queued == nil {
		f.cancel()
	} else {
		f.line.remove(f)
	}
	f.line.release(f)
	if h.flight == f {
		h.flight = nil
	}
}
