// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
)

const (
	minInterval     = time.Second
	defaultInterval = 15 * time.Second
)

// slotsOf returns the slots in which a query is evaluated, the same on all replicas. Their times
// are whole milliseconds, like those of resourceVersions.
func slotsOf(q Query) schedule.Schedule {
	interval := q.Interval
	switch {
	case interval <= 0:
		interval = defaultInterval
	case interval < minInterval:
		interval = minInterval
	}
	return schedule.Schedule{
		Interval: interval.Truncate(time.Millisecond),
		Phase:    schedule.Phase(interval, q.Source, q.Expression, interval.String()),
	}
}

// untilNext returns the duration from t to the start of the next slot: more than zero, and at
// most one interval, even if the clock has jumped.
func untilNext(s schedule.Schedule, t time.Time) time.Duration { return s.Next(t).Sub(t.Round(0)) }
