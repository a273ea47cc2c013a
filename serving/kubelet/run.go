// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

const (
	// tick is the longest that the scheduler waits, so that it shows its life.
	tick = 5 * time.Second
	// stuckAfter is how long the scheduler may be silent, and how long a scrape
	// may go on after its timeout, before Alive says so.
	stuckAfter = 6 * tick
	// warmUp bounds the interval of a node until it has two samples: without
	// them it has no rates, and an interval may be minutes.
	warmUp = 15 * time.Second
	// maxBackoff bounds the time between two tries of a node that hangs, unless
	// the interval itself is longer.
	maxBackoff = 2 * time.Minute
)

// Run scrapes until ctx ends, and returns when the last scrape has ended.
func (s *Source) Run(ctx context.Context) {
	defer s.stop()
	for {
		timer := s.clock.NewTimer(s.advance(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-s.wake:
			timer.Stop()
		}
	}
}

// advance starts what is due and returns how long there is nothing to do.
func (s *Source) advance(ctx context.Context) time.Duration {
	now := s.clock.Now()
	s.mu.Lock()
	s.round = now
	upkeep := !now.Before(s.upkeep)
	if upkeep {
		s.upkeep = now.Add(tick)
	}
	for s.inFlight < s.settings.MaxConcurrent {
		t := s.take(now)
		if t == nil {
			break
		}
		s.start(ctx, t, now)
	}
	wait := s.idle(now)
	s.next = now.Add(wait)
	s.mu.Unlock()
	if upkeep {
		s.maintain()
	}
	return wait
}

// take returns the target that has been due for the longest time, or nil.
func (s *Source) take(now time.Time) *target {
	t := firstDue(&s.ready, now)
	if from, free := s.suspectsTurn(); free && !now.Before(from) {
		if u := firstDue(&s.suspects, now); u != nil && (t == nil || u.Due().Before(t.Due())) {
			t = u
		}
	}
	if t != nil {
		s.unqueue(t)
	}
	return t
}

// firstDue returns the queue's first target if it is due, and leaves it in; nil otherwise.
func firstDue(queue *delayqueue.Queue[*target], now time.Time) *target {
	if first, ok := queue.Peek(); ok && !first.Due().After(now) {
		return first
	}
	return nil
}

// suspectsTurn says whether a suspect may get a slot, and from when on. Suspects
// get at most half of the slots, so that any number of nodes that hang, each for
// its whole timeout, leaves the other half to those that answer. Of a single slot
// they get half of the time: each leaves it to the others for as long as it had it.
func (s *Source) suspectsTurn() (from time.Time, free bool) {
	if s.settings.MaxConcurrent == 1 {
		return s.suspectsFrom, true
	}
	return time.Time{}, s.suspectsInFlight < s.settings.MaxConcurrent/2
}

// idle returns how long nothing is due.
func (s *Source) idle(now time.Time) time.Duration {
	wait := tick
	if s.inFlight >= s.settings.MaxConcurrent {
		return wait
	}
	if next := s.ready.NextDue(); !next.IsZero() {
		wait = min(wait, next.Sub(now))
	}
	if next := s.suspects.NextDue(); !next.IsZero() {
		if from, free := s.suspectsTurn(); free {
			wait = min(wait, max(next.Sub(now), from.Sub(now)))
		}
	}
	return max(wait, 0)
}

// start scrapes a target in a goroutine of its own; there are at most
// MaxConcurrent. The caller holds s.mu.
func (s *Source) start(ctx context.Context, t *target, now time.Time) {
	ctx, t.cancel = context.WithCancel(ctx)
	cfg, node, suspect := s.settings, t.node, t.timeouts > 0
	t.started, t.timeout = now, cfg.Timeout
	s.inFlight++
	if suspect {
		s.suspectsInFlight++
	}
	scheduleDelay.Observe(now.Sub(t.Due()).Seconds())
	scrapesInFlight.Inc()
	s.scrapes.Go(func() {
		o := s.scrape(ctx, t, node, cfg)
		s.finish(ctx, t, suspect, o)
	})
}

// finish takes in what came of a scrape; o is nil where it was cancelled.
func (s *Source) finish(ctx context.Context, t *target, suspect bool, o *outcome) {
	scrapesInFlight.Dec()
	if o != nil {
		o.count()
	}
	s.mu.Lock()
	t.cancel()
	t.cancel = nil
	if s.inFlight >= s.settings.MaxConcurrent || suspect {
		// Others may wait for the slot.
		s.nudge()
	}
	s.inFlight--
	if suspect {
		s.suspectsInFlight--
		now := s.clock.Now()
		s.suspectsFrom = now.Add(now.Sub(t.started))
	}
	var line *logLine
	if o != nil && !t.gone {
		line = s.noteOutcome(t, o)
	}
	if !t.gone {
		s.schedule(t, s.clock.Now())
	}
	s.mu.Unlock()
	line.write(ctx)
}

// noteOutcome records an outcome, and returns what is to be logged of it. The
// caller holds s.mu.
func (s *Source) noteOutcome(t *target, o *outcome) *logLine {
	failed, skips, first := t.failed, t.skips, !t.asked
	t.asked = true
	t.skips = o.tally.reasons()
	if o.failure != nil {
		t.failed = o.failure.reason
		t.message = fmt.Sprintf("node %s at %s: %v", t.name, o.url, o.failure)
		if o.url == "" {
			t.message = fmt.Sprintf("node %s: %v", t.name, o.failure)
		}
	} else {
		t.failed, t.message = "", ""
		if o.sample.After(t.sample) {
			t.renewals = min(t.renewals+1, 2)
		}
		t.sample, t.nodeSample = o.sample, o.nodeSample
		if o.nodeSample {
			t.rhythm.observe(o.asked, o.sample)
		}
	}
	if t.failed == v1alpha1.ScrapeTimeout {
		t.timeouts++
	} else {
		t.timeouts = 0
	}
	return s.lineFor(t, o, failed, skips, first)
}

// schedule queues a target for its next scrape. The caller holds s.mu.
//
// The slots of a node form a grid that is a pure function of the time, the
// interval and its phase. A change of the interval so yields another even
// spread, and a node that was late does not make up for it.
func (s *Source) schedule(t *target, now time.Time) {
	interval := s.settings.Interval
	if t.renewals < 2 {
		interval = min(interval, warmUp)
	}
	from := t.slot
	if from.Before(now.Add(-interval)) || from.After(now.Add(interval)) {
		// New, or the interval has changed.
		from = now
	}
	if t.timeouts > 1 {
		from = now.Add(backoff(t.timeouts, interval) - interval)
	}
	t.slot = slotAfter(from, interval, t.phase)
	due := t.rhythm.next(t.slot, interval)
	if !due.After(now) {
		t.slot = slotAfter(now, interval, t.phase)
		due = t.rhythm.next(t.slot, interval)
	}
	s.queueOf(t).Put(t, due)
	if due.Before(s.next) {
		s.nudge()
	}
}

// backoff is the time between tries of a node that timed out several times in a
// row: the interval doubled, and doubled again.
func backoff(timeouts int, interval time.Duration) time.Duration {
	wait := 2 * interval
	if timeouts > 2 {
		wait = 4 * interval
	}
	return min(wait, max(maxBackoff, interval))
}

func (s *Source) queueOf(t *target) *delayqueue.Queue[*target] {
	if t.timeouts > 0 {
		return &s.suspects
	}
	return &s.ready
}

func (s *Source) unqueue(t *target) { s.queueOf(t).Remove(t) }

// maintain does what is due now and then, apart from scrapes.
func (s *Source) maintain() {
	storePoints.WithLabelValues("node").Set(float64(s.store.Nodes.Sweep()))
	storePoints.WithLabelValues("pod").Set(float64(s.store.Pods.Sweep()))
	s.gauge()
}

// stop waits for the scrapes and closes what they leave.
func (s *Source) stop() {
	s.scrapes.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round = time.Time{}
	for _, t := range s.targets {
		t.link.closeIdle()
	}
}

// Alive returns an error when the scheduler is stuck, or a scrape does not end.
// It is nil as long as Run was not called, or has returned.
func (s *Source) Alive(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.round.IsZero() {
		return nil
	}
	if silent := now.Sub(s.round); silent > stuckAfter {
		return fmt.Errorf("the scrape scheduler has been stuck for %s", silent.Round(time.Second))
	}
	for _, t := range s.targets {
		if t.cancel == nil {
			continue
		}
		if late := now.Sub(t.started) - t.timeout; late > stuckAfter {
			return fmt.Errorf("the scrape of node %s is %s over its timeout of %s", t.name, late.Round(time.Second), t.timeout)
		}
	}
	return nil
}
