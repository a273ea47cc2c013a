// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"container/list"
	"time"
)

const (
	// certain is how many failures in a row that do not depend on what was asked
	// suspend a source; one may be a connection that broke.
	certain = 2
	// uncertain is how many different questions must fail, with no answer to any in
	// between, where each may be too much for a source that is well.
	uncertain = 3
	// patience is how long a suspended source waits for a question that has not been
	// tried, before it is tried with one that was.
	patience = 15 * time.Second
)

// line is what a Desk knows of a source: the questions that wait for it, and
// whether it fails altogether. Such a source is suspended: its questions fail at
// once with its newest failure, but for one at a time, after 1s, 2s, 4s and so on
// up to 30s, which tries whether it answers again. Questions take turns at that,
// since one may be too much even for a source that is well. Where it may be the
// questions (they time out, say, but the source can be reached), one that has not
// failed yet is tried at once, also one at a time.
type line struct {
	name   string
	source Source

	running int
	queue   list.List

	// failure is the newest; nil when the newest evaluation was answered.
	failure *Failure
	// certain counts failures in a row, and failing holds the questions of them.
	certain int
	failing map[*held]struct{}

	// until is when a suspended source may be tried; the zero time for one that is
	// not suspended. trials counts them, and trial is the one under way.
	until  time.Time
	trials int
	trial  *flight
	// innocent is the one under way of a question that has not failed itself.
	innocent *flight
	// waiting says that a question was refused since the last trial, and oldest is
	// when the one among them was tried that was tried longest ago.
	waiting bool
	oldest  time.Time

	meter meter
}

// line finds or makes the line of a source. A source that was replaced begins anew.
func (d *Desk) line(name string, source Source) *line {
	l := d.lines[name]
	if l == nil {
		l = &line{name: name, source: source, meter: newMeter(name)}
		d.lines[name] = l
	}
	if l.source != source {
		l.source = source
		l.recover()
	}
	return l
}

func (l *line) push(f *flight) {
	f.queued = l.queue.PushBack(f)
	l.meter.queued.Set(float64(l.queue.Len()))
}

func (l *line) remove(f *flight) {
	l.queue.Remove(f.queued)
	f.queued = nil
	l.meter.queued.Set(float64(l.queue.Len()))
}

// pop takes the flight that waits longest out of the queue, or returns nil.
func (l *line) pop() *flight {
	e := l.queue.Front()
	if e == nil {
		return nil
	}
	f := e.Value.(*flight)
	l.remove(f)
	return f
}

func (l *line) begin() {
	l.running++
	l.meter.running.Set(float64(l.running))
}

func (l *line) end(f *flight, failure *Failure, took time.Duration) {
	l.running--
	l.meter.running.Set(float64(l.running))
	l.meter.evaluated(failure, f.abandoned, took)
}

// admit returns nil where a flight may begin, or why not.
func (l *line) admit(f *flight, now time.Time) *Failure {
	if l.until.IsZero() || l.trial == f || l.innocent == f {
		return nil
	}
	turn := !now.Before(l.until) && (!l.waiting || !f.held.tried.After(l.oldest) || !now.Before(l.until.Add(patience)))
	if l.certain == 0 && f.held.attempts == 0 && l.innocent == nil {
		l.innocent = f
		return nil
	}
	if l.trial != nil || !turn {
		if !l.waiting || f.held.tried.Before(l.oldest) {
			l.waiting, l.oldest = true, f.held.tried
		}
		return l.failure
	}
	l.trial, l.waiting = f, false
	f.held.tried = now
	return nil
}

// release lets other flights try the source, since this one has ended.
func (l *line) release(f *flight) {
	if l.trial == f {
		l.trial = nil
	}
	if l.innocent == f {
		l.innocent = nil
	}
}

// observe takes in what an evaluation tells of its source.
func (d *Desk) observe(f *flight, failure *Failure, now time.Time) {
	l := f.line
	if l.source != f.source {
		return // a source that was replaced
	}
	tried := l.trial == f
	l.release(f)
	if failure == nil || failure.Reason.answered() {
		if l.failure != nil {
			suspended := !l.until.IsZero()
			l.recover()
			if suspended {
				d.logger.Info("Source answers again", "source", l.name)
				d.retryFailed(l.name, now)
			}
		}
		return
	}
	switch {
	case failure.Reason.certain():
		l.certain++
	case failure.Reason.uncertain():
	default:
		return // it tells nothing of the source
	}
	l.failure = failure
	if l.failing == nil {
		l.failing = map[*held]struct{}{}
	}
	if len(l.failing) < uncertain {
		l.failing[f.held] = struct{}{}
	}
	switch {
	case tried:
		l.trials++
	case l.until.IsZero() && (l.certain >= certain || len(l.failing) >= uncertain):
		l.trials = 1
		d.logger.Info("Source fails; its questions fail with it, but for one at a time that tries it",
			"source", l.name, "reason", failure.Reason, "message", failure.Message)
	default:
		return
	}
	l.until = now.Add(backoff(l.trials, d.random()))
	l.meter.suspended.Set(1)
}

// recover forgets that the source failed.
func (l *line) recover() {
	l.failure, l.certain, l.failing = nil, 0, nil
	l.until, l.trials, l.trial, l.innocent, l.waiting = time.Time{}, 0, nil, nil, false
	l.meter.suspended.Set(0)
}

func (l *line) retire() { l.meter.remove() }

// advance begins evaluations that wait, as far as there is room.
func (d *Desk) advance(l *line, now time.Time) {
	for l.queue.Len() > 0 && l.running < d.limits.Concurrency && !d.closed {
		f := l.pop()
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

// retryFailed ends the sharing of failures of a source that answers again, and has
// those questions evaluated that are followed.
func (d *Desk) retryFailed(name string, now time.Time) {
	for q, h := range d.questions {
		if q.Source != name || h.outcome == nil || h.outcome.err == nil || failureOf(name, h.outcome.err).Reason.answered() {
			continue
		}
		h.retry = time.Time{}
		if h.index != notDue && h.flight == nil {
			h.due = now
			d.agenda.put(h)
		}
	}
	d.nudge()
}
