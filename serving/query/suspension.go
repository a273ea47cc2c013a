// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"time"
)

const (
	// certain is how many failures in a row that do not depend on what was asked
	// suspend a source; one may be a connection that broke.
	certain = 2
	// uncertain is how many that differ must fail, with no answer in between, where
	// each may be too much for a source that is well.
	uncertain = 3
	// patience is how long who is suspended waits for a question that has not been
	// tried, before it is tried with one that was.
	patience = 15 * time.Second
)

// suspension is of a source that fails altogether, or fails one owner altogether: its
// questions fail at once, but for one at a time, after 1s, 2s, 4s and so on up to 30s,
// which tries whether it answers again. Questions take turns at that, since one may be
// too much even for a source that is well. Where it may be the questions (they
// time out, say, but the source can be reached), one that has not failed yet is tried at
// once, also one at a time.
type suspension struct {
	// failure is the newest; nil when the newest evaluation was answered.
	failure *Failure
	// certain and failing hold who failed with no answer in between: certain those
	// whose failure did not depend on what was asked.
	certain, failing map[any]struct{}

	// until is when it may be tried; the zero time for what is not suspended. trials
	// counts them, and trial is the one under way.
	until  time.Time
	trials int
	trial  *flight
	// innocent is the one under way of a question that has not failed itself.
	innocent *flight
	// waiting says that a question was refused since the last trial, and oldest is
	// when the one among them was tried that was tried longest ago.
	waiting bool
	oldest  time.Time
}

func (s *suspension) active() bool { return !s.until.IsZero() }

// admit returns nil where a flight may begin, or why not. fresh says that nothing is
// known against its owner.
func (s *suspension) admit(f *flight, fresh bool, now time.Time) *Failure {
	if !s.active() || s.trial == f || s.innocent == f {
		return nil
	}
	turn := !now.Before(s.until) && (!s.waiting || !f.held.tried.After(s.oldest) || !now.Before(s.until.Add(patience)))
	if (len(s.certain) == 0 || fresh) && f.held.attempts == 0 && s.innocent == nil {
		s.innocent = f
		return nil
	}
	if s.trial != nil || !turn {
		if !s.waiting || f.held.tried.Before(s.oldest) {
			s.waiting, s.oldest = true, f.held.tried
		}
		return s.refusal()
	}
	s.trial, s.waiting = f, false
	f.held.tried = now
	return nil
}

// refusal is what those are told who are not admitted. What a source says of a question
// is not for whoever asks another.
func (s *suspension) refusal() *Failure {
	if s.failure.Reason.certain() {
		return s.failure
	}
	return &Failure{Source: s.failure.Source, Reason: s.failure.Reason, suspended: true, Message: fmt.Sprintf(
		"suspended: different queries in a row failed with %s; they are tried one at a time until one is answered", s.failure.Reason)}
}

// release lets other flights try, since this one has ended, and returns whether it tried.
func (s *suspension) release(f *flight) (tried bool) {
	tried = s.trial == f
	if tried {
		s.trial = nil
	}
	if s.innocent == f {
		s.innocent = nil
	}
	return tried
}

// note takes in a failure. once tells what failed apart from others of which failures
// that are certain count once, and who does for those that are not.
func (s *suspension) note(failure *Failure, once, who any) {
	s.failure = failure
	if s.failing == nil {
		s.certain, s.failing = map[any]struct{}{}, map[any]struct{}{}
	}
	if failure.Reason.certain() && len(s.certain) < certain {
		s.certain[once] = struct{}{}
	}
	if len(s.failing) < uncertain {
		s.failing[who] = struct{}{}
	}
}

// enough says that so many failed that it is not what was asked.
func (s *suspension) enough() bool { return len(s.certain) >= certain || len(s.failing) >= uncertain }

// extend suspends, after a trial that failed or for the first time.
func (s *suspension) extend(now time.Time, random float64) {
	s.trials++
	s.until = now.Add(backoff(s.trials, random))
}
