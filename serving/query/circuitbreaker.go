// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"time"
)

const (
	// minSourceFaults is how many failures in a row that do not depend on the query open a
	// circuitBreaker; a single one may be a broken connection.
	minSourceFaults = 2
	// minFailing is how many different queries or tenants must fail without a success in
	// between if each may be too expensive for a healthy source.
	minFailing = 3
	// probeTurnTimeout is how long an open circuitBreaker waits for a rejected query to be
	// retried, before it probes with one that has been probed more recently.
	probeTurnTimeout = 15 * time.Second
	maxBackoff       = 30 * time.Second
)

// circuitBreaker fails queries fast while a source, or one tenant of it, keeps failing.
// While open it admits one probe at a time, with exponential backoff from 1s to 30s. Queries
// take turns as the probe, since one may be too expensive even for a healthy source. If the
// cause may be the queries (timeouts of a source that can be reached, say), it also admits
// one query at a time that has not failed before.
type circuitBreaker struct {
	// failure is the newest one; nil if the newest evaluation succeeded.
	failure *Failure
	// sourceFaults and failing are the keys that failed without a success in between:
	// sourceFaults those whose failure did not depend on the query.
	sourceFaults, failing map[any]struct{}

	// retryAt is when the next probe is due; zero while closed. probes counts the probes, and failedAt is when the last failed.
	retryAt, failedAt time.Time
	probes            int
	// heldUntil is the time of the last Retry-After of the source for a query of the tenant.
	heldUntil time.Time
	// halfOpenProbe and firstTry are the running evaluations that were admitted as the probe, and
	// as that of a query that has not failed before; 0 for none.
	halfOpenProbe, firstTry uint64
	// rejected says that queries were rejected since the last probe, and oldestTry is the
	// earliest time at which one of them was the probe.
	rejected  bool
	oldestTry time.Time
}

func (b *circuitBreaker) open() bool { return !b.retryAt.IsZero() }

// admit returns nil if the evaluation with this key may start, or why not. attempts are
// the failures in a row of its query, and lastTry is when that was the probe, which admit sets.
// tenantHealthy says that the last query of its tenant succeeded.
func (b *circuitBreaker) admit(key uint64, attempts int, lastTry *time.Time, tenantHealthy bool, now time.Time) *Failure {
	if !b.open() || b.halfOpenProbe == key || b.firstTry == key {
		return nil
	}
	if (len(b.sourceFaults) == 0 || tenantHealthy) && attempts == 0 && b.firstTry == 0 {
		b.firstTry = key
		return nil
	}
	turn := !now.Before(b.retryAt) && (!b.rejected || !lastTry.After(b.oldestTry) || !now.Before(b.retryAt.Add(probeTurnTimeout)))
	if b.halfOpenProbe != 0 || !turn {
		if !b.rejected || lastTry.Before(b.oldestTry) {
			b.rejected, b.oldestTry = true, *lastTry
		}
		return b.rejection()
	}
	b.halfOpenProbe, b.rejected, *lastTry = key, false, now
	return nil
}

// rejection returns the failure of queries that are not admitted. It never contains another
// query's error text.
func (b *circuitBreaker) rejection() *Failure {
	if b.failure.Reason.sourceFault() {
		return b.failure
	}
	return &Failure{Source: b.failure.Source, Reason: b.failure.Reason, circuitOpen: true, Message: fmt.Sprintf(
		"circuit breaker open: different queries in a row failed with %s; one at a time is tried until one succeeds", b.failure.Reason)}
}

// release admits other evaluations after this one has ended, and reports whether it was the probe.
func (b *circuitBreaker) release(key uint64) (probe bool) {
	probe = b.halfOpenProbe == key
	if probe {
		b.halfOpenProbe = 0
	}
	if b.firstTry == key {
		b.firstTry = 0
	}
	return probe
}

// record adds a failure. Failures that do not depend on the query count once per
// faultKey, others once per key.
func (b *circuitBreaker) record(failure *Failure, faultKey, key any) {
	b.failure = failure
	if b.failing == nil {
		b.sourceFaults, b.failing = map[any]struct{}{}, map[any]struct{}{}
	}
	if failure.Reason.sourceFault() && len(b.sourceFaults) < minSourceFaults {
		b.sourceFaults[faultKey] = struct{}{}
	}
	if len(b.failing) < minFailing {
		b.failing[key] = struct{}{}
	}
}

// shouldOpen reports whether so many have failed that the query is not the cause.
func (b *circuitBreaker) shouldOpen() bool {
	return len(b.sourceFaults) >= minSourceFaults || len(b.failing) >= minFailing
}

// extend opens the circuitBreaker, or keeps it open after a failed probe. It is held for retryAfter, if
// that is not less than before.
func (b *circuitBreaker) extend(now time.Time, random float64, retryAfter time.Duration) {
	b.probes++
	b.failedAt = now
	if until := now.Add(retryAfter); until.After(b.heldUntil) {
		b.heldUntil = until
	}
	if b.retryAt = now.Add(backoff(b.probes, random)); b.retryAt.Before(b.heldUntil) {
		b.retryAt = b.heldUntil
	}
}

// backoff doubles from one second to maxBackoff, with a jitter of a quarter so that
// replicas do not retry in step.
func backoff(attempt int, random float64) time.Duration {
	d := min(time.Second<<min(attempt-1, 10), maxBackoff)
	return time.Duration((1 - 0.25*random) * float64(d))
}
