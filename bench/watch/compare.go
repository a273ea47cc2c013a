// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

// way is a method of getting data, with its cost.
type way struct {
	name string
	// interval between two polls; 0 for a watch.
	interval time.Duration
	*measured
}

// streamsDefault is serving's limit of streams per connection.
const streamsDefault = 250

// runComparison measures the same clients watching, and then polling, the same sources.
func runComparison(ctx context.Context, e *environment, f *flags, say progress.Say) ([]way, error) {
	ways := []way{{name: "watch"}}
	for _, interval := range f.pollIntervals {
		ways = append(ways, way{name: fmt.Sprintf("poll, %v", interval), interval: interval})
	}
	if err := e.startServing(ctx, f, streamsDefault, "", say); err != nil {
		return nil, err
	}
	for i := range ways {
		one := &ways[i]
		if err := one.run(ctx, e, f); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		say("%d clients, %s: %.0f mCPU, age p50 %.1fs", f.clients, one.name, one.millicores(one.cpu), one.ages.Quantile(0.5).Seconds())
	}
	return ways, nil
}

func (one *way) run(ctx context.Context, e *environment, f *flags) error {
	s, err := dial(ctx, e, e.direct(f), resource, fmt.Sprintf("compare-%d", one.interval/time.Millisecond), f.connections[0])
	if err != nil {
		return err
	}
	defer s.close()
	return one.measure(ctx, s, f, f.clients, time.Second, func() error { return nil })
}

// measure has the clients of a session watch or poll, records for a time, and calls then while
// they still do. Watches are opened over a time.
func (one *way) measure(ctx context.Context, s *session, f *flags, clients int, over time.Duration, then func() error) (err error) {
	if one.interval == 0 {
		if err := s.watch(ctx, clients, over, true); err != nil {
			return err
		}
		// The initial events are not part of the measurement.
		if err := progress.Wait(ctx, time.Second); err != nil {
			return err
		}
		if one.measured, err = s.measure(ctx, f.compare); err != nil {
			return err
		}
		return then()
	}
	polling, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- s.poll(polling, clients, one.interval) }()
	// Each client has polled once before the measurement, which lasts whole intervals.
	if err := progress.Wait(ctx, one.interval+time.Second); err != nil {
		return err
	}
	rounds := max(1, int(f.compare/one.interval))
	if one.measured, err = s.measure(ctx, time.Duration(rounds)*one.interval); err != nil {
		return err
	}
	if err := then(); err != nil {
		return err
	}
	stop()
	return <-done
}
