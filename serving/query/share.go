// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"fmt"
	"time"
)

// holding counts what is held: questions, the bytes of their expressions, the samples of
// their answers, and the requests that wait for one.
type holding struct{ questions, bytes, samples, waiting int }

// share is what an owner holds.
type share struct {
	owner string
	holding
	// recent are the questions that nobody follows, the one that was asked longest ago
	// first.
	recent list.List
}

func (s *share) add(h *held) {
	if h.recent == nil {
		h.recent = s.recent.PushBack(h)
	}
}

func (s *share) remove(h *held) {
	if h.recent != nil {
		s.recent.Remove(h.recent)
		h.recent = nil
	}
}

// oldest returns the question that was asked longest ago of those that can be
// forgotten, but for one; nil where there is none.
func (s *share) oldest(but *held) *held {
	for e := s.recent.Front(); e != nil; e = e.Next() {
		if h := e.Value.(*held); h != but && !h.busy() {
			return h
		}
	}
	return nil
}

// hold finds or enters a question that is asked.
func (d *Evaluator) hold(q Query, now time.Time) (*held, error) {
	if h := d.questions[q]; h != nil {
		return h, nil
	}
	var own holding
	for {
		if s := d.shares[q.Tenant]; s != nil {
			own = s.holding
		} else {
			own = holding{}
		}
		var measure func(holding) int
		switch {
		case !fair(own.questions, d.total.questions, 1, d.limits.MaxQueries):
			measure = func(h holding) int { return h.questions }
		case !fair(own.bytes, d.total.bytes, len(q.Expression), d.limits.MaxCachedBytes):
			measure = func(h holding) int { return h.bytes }
		default:
			return d.enter(q), nil
		}
		if !d.makeRoom(measure, measure(own), nil) {
			return nil, &EvaluationError{Time: now, Failure: &Failure{Source: q.Source, Reason: ReasonOverloaded, Message: fmt.Sprintf(
				"this server holds %d questions already, %d of them of %s, that are followed or being evaluated: ask for fewer different metrics and shorter selectors",
				d.total.questions, own.questions, called(q.Tenant))}}
		}
	}
}

// called names an owner in a message.
func called(owner string) string {
	if owner == "" {
		return "the whole cluster"
	}
	return fmt.Sprintf("namespace %q", owner)
}

func (d *Evaluator) enter(q Query) *held {
	s := d.shares[q.Tenant]
	if s == nil {
		s = &share{owner: q.Tenant}
		d.shares[q.Tenant] = s
	}
	h := &held{question: q, slots: slotsOf(q), share: s}
	d.questions[q] = h
	s.add(h)
	d.count(s, holding{questions: 1, bytes: len(q.Expression)})
	return h
}

// count adds to what is held.
func (d *Evaluator) count(s *share, more holding) {
	for _, to := range []*holding{&s.holding, &d.total} {
		to.questions += more.questions
		to.bytes += more.bytes
		to.samples += more.samples
		to.waiting += more.waiting
	}
	questionsHeld.Set(float64(d.total.questions))
	expressionBytesHeld.Set(float64(d.total.bytes))
	samplesHeld.Set(float64(d.total.samples))
}

func (d *Evaluator) touch(h *held, now time.Time) {
	h.asked = now
	if h.recent != nil {
		h.share.recent.MoveToBack(h.recent)
	}
}

// keep makes an answer the last one of its question, or returns a failure where that
// would be too many samples for this process.
func (d *Evaluator) keep(h *held, answer *Result) *Failure {
	more := len(answer.Samples)
	if h.last != nil {
		more -= len(h.last.Samples)
	}
	for more > 0 && !fair(h.share.samples, d.total.samples, more, d.limits.MaxCachedSamples) {
		if !d.makeRoom(func(h holding) int { return h.samples }, h.share.samples, h) {
			return &Failure{Source: h.question.Source, Reason: ReasonTooLarge, Message: fmt.Sprintf(
				"the answers that this server holds have %d samples, %d of them of %s, and with the %d of this one fewer than that would be left to others of %d: aggregate in the query",
				d.total.samples, h.share.samples, called(h.question.Tenant), len(answer.Samples), d.limits.MaxCachedSamples)}
		}
	}
	d.count(h.share, holding{samples: more})
	h.last = answer
	return nil
}

func (d *Evaluator) dropLast(h *held) {
	if h.last != nil {
		d.count(h.share, holding{samples: -len(h.last.Samples)})
		h.last = nil
	}
}

// makeRoom forgets a question of the owner that holds most by a measure, but for one.
// own is what the one holds who needs room: owners that hold less lose nothing to it.
// It returns false where there is nothing to forget.
func (d *Evaluator) makeRoom(measure func(holding) int, own int, but *held) bool {
	var victim *held
	most := own
	for _, s := range d.shares {
		n := measure(s.holding)
		if n == 0 || n < most {
			continue
		}
		if h := s.oldest(but); h != nil {
			victim, most = h, n
		}
	}
	if victim == nil {
		return false
	}
	d.forget(victim)
	return true
}

func (d *Evaluator) forget(h *held) {
	d.dropLast(h)
	h.share.remove(h)
	delete(d.questions, h.question)
	d.count(h.share, holding{questions: -1, bytes: -len(h.question.Expression)})
	if h.share.questions == 0 {
		delete(d.shares, h.share.owner)
	}
}
