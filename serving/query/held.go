// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

// sweepInterval is how often questions are looked through for those to forget.
const sweepInterval = 30 * time.Second

// outcome is what came of a question's newest evaluation. It is immutable.
type outcome struct {
	answer *Result
	err    error
	slot   int64
	// until is when an answer ends that came when nobody waited for it any more; the
	// zero time for others, which end with their slot.
	until time.Time
	// version counts a question's outcomes.
	version uint64
}

// held is what a Desk knows of a question.
type held struct {
	question Query
	slots    slots
	share    *share

	// recent is the place among its owner's questions that nobody follows; nil otherwise.
	recent *list.Element
	asked  time.Time

	followers map[*follower]struct{}
	// behind says that its next answer is to be as of now, since it follows one of another
	// question which may be newer than the slot.
	behind bool
	// Entry is when a followed question is to be looked at.
	delayqueue.Entry

	// flight is the evaluation that is under way or queued.
	flight *flight

	outcome *outcome
	version uint64
	// source gave the outcome.
	source Source
	// last is the newest answer, for as long as the source fails after it.
	last *Result
	// retry is until when a failure is shared; the zero time for one that is not.
	retry time.Time
	// attempts counts the evaluations that failed in a row.
	attempts int
	// failures counts the slots in a row in which the question failed, the last of
	// which is failedSlot.
	failures   int
	failedSlot int64
	// tried is when the question was last put to a source that is suspended.
	tried time.Time
}

// current returns the outcome that holds now, or nil.
func (d *Evaluator) current(h *held, source Source, now time.Time) *outcome {
	o := h.outcome
	if o == nil || h.source != source {
		return nil
	}
	slot, _ := h.slots.at(now)
	switch {
	case o.err == nil && (o.slot == slot || now.Before(o.until)):
		return o
	case o.err != nil && now.Before(h.retry):
		if h.failedSlot != slot {
			d.fail(h, source, slot, failureOf(h.question.Source, o.err), now)
		}
		return h.outcome
	}
	return nil
}

// settle takes in what came of an evaluation.
func (h *held) settle(source Source, slot int64, answer *Result, err error) {
	h.version++
	h.source, h.behind = source, h.behind && err != nil
	h.outcome = &outcome{answer: answer, err: err, slot: slot, version: h.version}
}

// isBehind says that there is no answer of an instant or later.
func (h *held) isBehind(since time.Time) bool {
	if since.IsZero() {
		return false
	}
	return h.outcome == nil || h.outcome.err != nil || h.outcome.answer.Time.Before(since)
}

// fail takes in a failure.
func (h *held) fail(source Source, slot int64, failure *Failure, now time.Time) {
	if h.failures == 0 || h.failedSlot != slot {
		h.failures++
		h.failedSlot = slot
	}
	h.settle(source, slot, nil, h.outage(failure, now))
}

// outage is what those are told who ask.
func (h *held) outage(failure *Failure, now time.Time) *EvaluationError {
	return &EvaluationError{Failure: failure, FailedIntervals: h.failures, Time: now, LastResult: h.last}
}

// busy says that a question cannot be forgotten.
func (h *held) busy() bool { return len(h.followers) > 0 || h.flight != nil }

// sweep forgets questions that nobody asks any more, and answers that are too old
// to stand in for others.
func (d *Evaluator) sweep(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	for _, h := range d.questions {
		switch {
		case !h.busy() && now.Sub(h.asked) >= max(d.limits.IdleTime, 4*h.slots.length()):
			d.forget(h)
		case h.last != nil && h.outcome.err != nil && now.Sub(h.last.Time) > d.limits.MaxResultAge:
			d.dropLast(h)
		}
	}
	type use struct{ source, owner string }
	used := map[use]bool{}
	for q := range d.questions {
		used[use{q.Source, q.Tenant}] = true
	}
	for name, l := range d.lines {
		for owner, n := range l.lanes {
			if !used[use{name, owner}] && n.running == 0 {
				delete(l.lanes, owner)
			}
		}
		if len(l.lanes) == 0 {
			l.retire()
			delete(d.lines, name)
		}
	}
}
