// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"time"
)

// line is what a Desk knows of a source: the questions that wait for it, each in the lane
// of its owner, and whether it fails altogether.
//
// It is suspended when it fails several owners, with no answer to any since; or every owner
// that it is asked by. So no owner's questions take it away from others. One that it
// fails altogether, while it answers others, is suspended alone.
type line struct {
	suspension
	name   string
	source Source

	lanes map[string]*lane
	// turns are the lanes with flights that wait, the one whose turn is next first.
	turns list.List
	// running and queued count those of all lanes.
	running, queued int
	// answered is when the source last answered anything.
	answered time.Time

	meter meter
}

// lane is what is known of an owner's questions to a source.
type lane struct {
	suspension
	owner   string
	running int
	queue   list.List
	// turn is its place among those whose flights wait; nil where none does.
	turn *list.Element
}

// line finds or makes the line of a source. A source that was replaced begins anew.
func (d *Evaluator) line(name string, source Source) *line {
	l := d.lines[name]
	if l == nil {
		l = &line{name: name, source: source, lanes: map[string]*lane{}, meter: newMeter(name)}
		d.lines[name] = l
	}
	if l.source != source {
		l.source = source
		l.answered = time.Time{}
		l.recover()
	}
	return l
}

func (l *line) lane(owner string) *lane {
	n := l.lanes[owner]
	if n == nil {
		n = &lane{owner: owner}
		l.lanes[owner] = n
	}
	return n
}

// suspended returns until when an owner's questions are not tried; the zero time where
// they are.
func (l *line) suspended(owner string) time.Time {
	if n := l.lanes[owner]; !l.active() && n != nil {
		return n.until
	}
	return l.until
}

func (l *line) push(f *flight) {
	f.queued = f.lane.queue.PushBack(f)
	if f.lane.turn == nil {
		f.lane.turn = l.turns.PushBack(f.lane)
	}
	l.queued++
	l.meter.queued.Set(float64(l.queued))
}

func (l *line) remove(f *flight) {
	f.lane.queue.Remove(f.queued)
	f.queued = nil
	if f.lane.queue.Len() == 0 {
		l.turns.Remove(f.lane.turn)
		f.lane.turn = nil
	}
	l.queued--
	l.meter.queued.Set(float64(l.queued))
}

// first returns the flight that waits longest in the lane whose turn is next, of those
// lanes that may have one more; nil where there is none.
func (l *line) first(may func(*lane) bool) *flight {
	for e := l.turns.Front(); e != nil; e = e.Next() {
		if n := e.Value.(*lane); may == nil || may(n) {
			return n.queue.Front().Value.(*flight)
		}
	}
	return nil
}

// yield ends the turn of a lane.
func (l *line) yield(n *lane) {
	if n.turn != nil {
		l.turns.MoveToBack(n.turn)
	}
}

// room says whether a lane may have one more evaluation under way.
func (d *Evaluator) room(l *line, n *lane) bool {
	return fair(n.running, l.running, 1, d.limits.Concurrency)
}

func (l *line) begin(f *flight, now time.Time) {
	f.began = now
	l.running++
	f.lane.running++
	l.meter.running.Set(float64(l.running))
}

func (l *line) end(f *flight, failure *Failure, took time.Duration) {
	l.running--
	f.lane.running--
	l.meter.running.Set(float64(l.running))
	l.meter.evaluated(failure, f.abandoned, took)
}

// admit returns nil where a flight may begin, or why not.
func (l *line) admit(f *flight, now time.Time) *Failure {
	if l.active() {
		return l.suspension.admit(f, f.lane.failure == nil, now)
	}
	return f.lane.admit(f, false, now)
}

// release lets other flights try the source, since this one has ended.
func (l *line) release(f *flight) {
	l.suspension.release(f)
	f.lane.release(f)
}

// observe takes in what an evaluation tells of its source.
func (d *Evaluator) observe(f *flight, failure *Failure, now time.Time) {
	l, n := f.line, f.lane
	if l.source != f.source {
		return // a source that was replaced
	}
	triedAll, tried := l.suspension.release(f), n.release(f)
	if failure == nil || failure.Reason.answered() {
		d.answered(l, n, now)
		return
	}
	if !failure.Reason.certain() && !failure.Reason.uncertain() {
		return // it tells nothing of the source
	}
	n.note(failure, f, f.held)
	if tried || (!n.active() && n.enough()) {
		if !n.active() {
			d.logger.V(2).Info("Source fails the questions of a namespace; they fail with it, but for one at a time that tries it",
				"source", l.name, "namespace", n.owner, "reason", failure.Reason, "message", failure.Message)
		}
		n.extend(now, d.random())
	}
	// Where it has answered others meanwhile, it is what was asked.
	if triedAll || !l.answered.After(f.began) {
		l.note(failure, n, n)
	}
	if triedAll || (!l.active() && (l.enough() || l.failsAll())) {
		if !l.active() {
			l.failure = failure
			d.logger.Info("Source fails; its questions fail with it, but for one at a time that tries it",
				"source", l.name, "reason", failure.Reason, "message", failure.Message)
		}
		l.extend(now, d.random())
		l.meter.suspended.Set(1)
	}
}

// failsAll says that each owner is suspended that asks.
func (l *line) failsAll() bool {
	for _, n := range l.lanes {
		if !n.active() {
			return false
		}
	}
	return true
}

// answered takes in that a source has answered an owner.
func (d *Evaluator) answered(l *line, n *lane, now time.Time) {
	l.answered = now
	switch {
	case l.active():
		l.recover()
		d.logger.Info("Source answers again", "source", l.name)
		d.retryFailed(l.name, func(string) bool { return true }, now)
	case n.active():
		d.logger.V(2).Info("Source answers the questions of a namespace again", "source", l.name, "namespace", n.owner)
		d.retryFailed(l.name, func(owner string) bool { return owner == n.owner }, now)
	}
	l.suspension, n.suspension = suspension{}, suspension{}
}

// recover forgets that the source failed.
func (l *line) recover() {
	l.suspension = suspension{}
	for _, n := range l.lanes {
		n.suspension = suspension{}
	}
	l.meter.suspended.Set(0)
}

func (l *line) retire() { l.meter.remove() }

// advance begins evaluations that wait, as far as there is room. Owners take turns.
func (d *Evaluator) advance(l *line, now time.Time) {
	for !d.closed {
		f := l.first(func(n *lane) bool { return d.room(l, n) })
		if f == nil {
			return
		}
		l.remove(f)
		l.yield(f.lane)
		if failure := l.admit(f, now); failure != nil && l.source == f.source {
			slot, _ := f.held.slots.at(now)
			h := f.held
			if h.flight == f {
				h.flight = nil
				d.refuse(h, f.source, slot, failure, now)
				d.schedule(h, now)
			}
			f.end(nil, h.outage(failure, now))
			continue
		}
		d.start(f, now)
	}
}

// retryFailed ends the sharing of failures of a source that answers owners again, and
// has those of their questions evaluated that are followed.
func (d *Evaluator) retryFailed(name string, of func(owner string) bool, now time.Time) {
	for q, h := range d.questions {
		if q.Source != name || !of(q.Tenant) || h.outcome == nil || h.outcome.err == nil || failureOf(name, h.outcome.err).Reason.answered() {
			continue
		}
		h.retry = time.Time{}
		if h.Queued() && h.flight == nil {
			d.agenda.Put(h, now)
		}
	}
	d.nudge()
}
