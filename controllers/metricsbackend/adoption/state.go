// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"errors"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

const (
	// FirstPause follows the first failure that changed something in the cluster. It
	// doubles with each further one.
	FirstPause = 10 * time.Minute
	maxPause   = 6 * time.Hour
)

// errNotRequested is the last error of a canary API that was never requested.
var errNotRequested = errors.New("no request was sent in time")

// State is what is remembered of the checks for one MetricsBackend. The zero value is
// ready to use. A new process starts with it, and with the failure in the status.
type State struct {
	started    bool
	generation int64
	// passed is when a check passed, canarySince when the canary API was registered;
	// zero if not. lastError is that of the last request to it.
	passed, canarySince time.Time
	lastError           error
	// Until retry nothing is taken over, because of failure.
	retry    time.Time
	failure  lifecycle.Pause
	failures int
}

// retryAt, before a time, is in the message of a failure that changed something in the
// cluster.
const retryAt = ". After a change of the spec it is tried at once; otherwise the next try is at "

// Follow starts over at another generation of the spec. In a new process it continues the
// pause of the failure that the status reports for this generation, if any. It must be
// called before the status is written.
func (s *State) Follow(generation int64, reported lifecycle.Pause, now time.Time) {
	if s.started && s.generation == generation {
		return
	}
	restarted := !s.started
	*s = State{started: true, generation: generation, canarySince: s.canarySince, lastError: s.lastError}
	if _, text, paused := strings.Cut(reported.Message, retryAt); restarted && paused {
		if retry, err := time.Parse(time.RFC3339, text); err == nil {
			s.failures = 1
			s.pause(now, retry.Sub(now), reported)
		}
	}
}

// Paused returns why nothing may be taken over for now, or the zero value.
func (s *State) Paused(now time.Time) lifecycle.Pause {
	if !now.Before(s.retry) {
		return lifecycle.Pause{}
	}
	return lifecycle.Pause{Reason: s.failure.Reason, Message: s.failure.Message, Left: s.retry.Sub(now)}
}

// Fail keeps everything from being taken over for a while, longer with each failure, and
// adds when that ends to the message. What fails for the same reason meanwhile, such as
// another version of an API, is no further failure.
func (s *State) Fail(now time.Time, why lifecycle.Pause) lifecycle.Pause {
	if s.failure.Reason == why.Reason && now.Before(s.retry) {
		why.Message += retryAt + s.retry.UTC().Format(time.RFC3339)
		return why
	}
	pause := FirstPause
	for range s.failures {
		pause = min(2*pause, maxPause)
	}
	s.failures++
	why.Message += retryAt + now.Add(pause).UTC().Format(time.RFC3339)
	s.pause(now, pause, why)
	return why
}

// Succeed forgets earlier failures: a takeover has succeeded.
func (s *State) Succeed() { s.failures = 0 }

func (s *State) pause(now time.Time, d time.Duration, why lifecycle.Pause) {
	s.passed, s.retry, s.failure = time.Time{}, now.Add(d), why
}
