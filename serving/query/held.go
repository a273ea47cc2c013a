// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"fmt"
	"time"
)

// sweepInterval is how often questions are looked through for those to forget.
const sweepInterval = 30 * time.Second

// outcome is what came of a question's newest evaluation. It is immutable.
type outcome struct {
	answer *Answer
	err    error
	slot   int64
	// version counts a question's outcomes.
	version uint64
}

// held is what a Desk knows of a question.
type held struct {
	question Question
	slots    slots

	// recent is the place among the questions that nobody follows; nil otherwise.
	recent *list.Element
	asked  time.Time

	followers map[*follower]struct{}
	// due is when a followed question is to be looked at, and index its place in
	// the agenda.
	due   time.Time
	index int

	// flight is the evaluation that is under way or queued.
	flight *flight

	outcome *outcome
	version uint64
	// source gave the outcome.
	source Source
	// last is the newest answer, for as long as the source fails after it.
	last *Answer
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
func (d *Desk) current(h *held, source Source, now time.Time) *outcome {
	o := h.outcome
	if o == nil || h.source != source {
		return nil
	}
	slot, _ := h.slots.at(now)
	switch {
	case o.err == nil && o.slot == slot:
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
func (h *held) settle(source Source, slot int64, answer *Answer, err error) {
	h.version++
	h.source = source
	h.outcome = &outcome{answer: answer, err: err, slot: slot, version: h.version}
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
func (h *held) outage(failure *Failure, now time.Time) *Outage {
	return &Outage{Failure: failure, Failures: h.failures, Time: now, Last: h.last}
}

// busy says that a question cannot be forgotten.
func (h *held) busy() bool { return len(h.followers) > 0 || h.flight != nil }

// recent is a list of questions, the one that was asked longest ago first.
type recent struct{ list.List }

func (r *recent) add(h *held) {
	if h.recent == nil {
		h.recent = r.PushBack(h)
	}
}

func (r *recent) remove(h *held) {
	if h.recent != nil {
		r.Remove(h.recent)
		h.recent = nil
	}
}

// hold finds or enters a question that is asked.
func (d *Desk) hold(q Question, now time.Time) (*held, error) {
	if h := d.questions[q]; h != nil {
		return h, nil
	}
	for len(d.questions) >= d.limits.MaxQuestions {
		if d.forgetOldest(nil) {
			continue
		}
		return nil, &Outage{Time: now, Failure: &Failure{Source: q.Source, Reason: ReasonOverloaded, Message: fmt.Sprintf(
			"this server holds %d questions already, all of which are followed or being evaluated: ask for fewer different metrics and selectors", len(d.questions))}}
	}
	return d.enter(q), nil
}

func (d *Desk) enter(q Question) *held {
	h := &held{question: q, slots: slotsOf(q), index: notDue}
	d.questions[q] = h
	d.recent.add(h)
	questionsHeld.Set(float64(len(d.questions)))
	return h
}

func (d *Desk) touch(h *held, now time.Time) {
	h.asked = now
	if h.recent != nil {
		d.recent.MoveToBack(h.recent)
	}
}

// keep makes an answer the last one of its question, or returns a failure where that
// would be too many samples for this process.
func (d *Desk) keep(h *held, answer *Answer) *Failure {
	more := len(answer.Samples)
	if h.last != nil {
		more -= len(h.last.Samples)
	}
	for d.samples+more > d.limits.MaxHeldSamples {
		if !d.forgetOldest(h) {
			return &Failure{Source: h.question.Source, Reason: ReasonTooLarge, Message: fmt.Sprintf(
				"the answers that this server holds have %d samples, and with the %d of this one would be more than %d: aggregate in the query", d.samples, len(answer.Samples), d.limits.MaxHeldSamples)}
		}
	}
	d.samples += more
	h.last = answer
	samplesHeld.Set(float64(d.samples))
	return nil
}

func (d *Desk) dropLast(h *held) {
	if h.last != nil {
		d.samples -= len(h.last.Samples)
		h.last = nil
		samplesHeld.Set(float64(d.samples))
	}
}

// forgetOldest forgets the question that was asked longest ago, but for one. It
// returns false where there is none that can be forgotten.
func (d *Desk) forgetOldest(but *held) bool {
	for e := d.recent.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*held); h != but && !h.busy() {
			d.forget(h)
			return true
		}
	}
	return false
}

func (d *Desk) forget(h *held) {
	d.dropLast(h)
	d.recent.remove(h)
	delete(d.questions, h.question)
	questionsHeld.Set(float64(len(d.questions)))
}

// sweep forgets questions that nobody asks any more, and answers that are too old
// to stand in for others.
func (d *Desk) sweep(now time.Time) {
	d.mu.Lock()
	defer d.unlock()
	for _, h := range d.questions {
		switch {
		case !h.busy() && now.Sub(h.asked) >= max(d.limits.IdleTime, 4*h.slots.length()):
			d.forget(h)
		case h.last != nil && h.outcome.err != nil && now.Sub(h.last.Time) > d.limits.MaxAnswerAge:
			d.dropLast(h)
		}
	}
	used := map[string]bool{}
	for q := range d.questions {
		used[q.Source] = true
	}
	for name, l := range d.lines {
		if !used[name] && l.running == 0 {
			l.retire()
			delete(d.lines, name)
		}
	}
}
