// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
	"github.com/metricsbackend/metrics-backend-operator/serving/delayqueue"
)

const (
	// maxWait is the longest time between two runs of the scheduler, see Alive.
	maxWait = 5 * time.Second
	// stuckAfter is the time without a run of the scheduler, and that of a scrape
	// after its timeout, from which Alive returns an error.
	stuckAfter = 6 * maxWait
	// firstSpread is the time over which the first scrapes of nodes that are added
	// together are spread.
	firstSpread = 2 * time.Second
	// warmUpInterval is the interval of a new node while some of its pods have one
	// sample only, for at most warmUpTime: a kubelet renews each after 10 to 20 s. On the
	// grid it is 4 s, so the sixth scrape sees the second sample of all, and five scrapes
	// meet a period of 10 s at five different ages, from which package refresh learns.
	warmUpInterval = 3750 * time.Millisecond
	warmUpTime     = 30 * time.Second
	// noRatesInterval bounds the interval of a node until it has the two samples that
	// a rate needs, since an interval may be minutes.
	noRatesInterval = 15 * time.Second
	// grid is the time between two instants at which scrapes start: all that became due
	// since the last one start together. Waking an idle processor costs more than the
	// scrape itself, so this is a third of the CPU of starting each scrape when it is due.
	// Samples get half of it older on average; half a second saves little more.
	grid = 250 * time.Millisecond
	// upkeepInterval is the time between two passes over all points in the store.
	upkeepInterval = 15 * time.Second
	// maxBackoff bounds the time between scrapes of a node that times out, unless
	// the interval is longer.
	maxBackoff = 2 * time.Minute
)

// Run scrapes until ctx is canceled, and returns when the last scrape has ended.
func (s *Source) Run(ctx context.Context) {
	defer s.stop()
	for s.wake.Wait(ctx, s.clock, s.startDue(ctx)) {
	}
}

// startDue starts the scrapes that are due and returns the time until the next run.
func (s *Source) startDue(ctx context.Context) time.Duration {
	now := s.clock.Now()
	s.mu.Lock()
	s.lastRun = now
	upkeep := !now.Before(s.nextUpkeep)
	if upkeep {
		s.nextUpkeep = now.Add(upkeepInterval)
	}
	// A run for a slot that was freed starts what was due at the last instant of the grid.
	instant := now.Truncate(grid)
	for s.inFlight < s.settings.MaxConcurrent {
		t := s.popDue(instant)
		if t == nil {
			break
		}
		s.start(ctx, t, now)
	}
	wait := s.untilDue(now)
	s.nextRun = now.Add(wait)
	s.mu.Unlock()
	if upkeep {
		s.upkeep()
	}
	return wait
}

// popDue removes and returns the target that has been due for the longest time, or
// nil.
func (s *Source) popDue(now time.Time) *target {
	t := firstDue(&s.queue, now)
	if from, free := s.slowSlot(); free && !now.Before(from) {
		if u := firstDue(&s.slowTargets, now); u != nil && (t == nil || u.Due().Before(t.Due())) {
			t = u
		}
	}
	if t != nil {
		s.unqueue(t)
	}
	return t
}

// firstDue returns the queue's first target if it is due, or nil.
func firstDue(queue *delayqueue.Queue[*target], now time.Time) *target {
	if first, ok := queue.Peek(); ok && !first.Due().After(now) {
		return first
	}
	return nil
}

// slowSlot reports whether a slow target may use a slot, and from when. Slow targets
// use at most half of the slots, so that nodes that hang until their timeout leave
// the other half to nodes that answer. A single slot they use half of the time: each
// leaves it to other targets for as long as it used it.
func (s *Source) slowSlot() (from time.Time, free bool) {
	if s.settings.MaxConcurrent == 1 {
		return s.slowFrom, true
	}
	return time.Time{}, s.slowInFlight < s.settings.MaxConcurrent/2
}

// untilDue returns the time until the instant of the grid at which a target is due and
// may use a slot.
func (s *Source) untilDue(now time.Time) time.Duration {
	// Where wake.Every wakes the process anyway.
	wait := now.Truncate(maxWait).Add(maxWait).Sub(now)
	if s.inFlight >= s.settings.MaxConcurrent {
		return wait
	}
	if next := s.queue.NextDue(); !next.IsZero() {
		wait = min(wait, ceil(next).Sub(now))
	}
	if next := s.slowTargets.NextDue(); !next.IsZero() {
		if from, free := s.slowSlot(); free {
			wait = min(wait, max(ceil(next).Sub(now), ceil(from).Sub(now)))
		}
	}
	return max(wait, 0)
}

// ceil returns the first instant of the grid that is not before t.
func ceil(t time.Time) time.Time {
	if instant := t.Truncate(grid); instant.Before(t) {
		return instant.Add(grid)
	}
	return t
}

// start scrapes a target in a new goroutine. The caller holds s.mu and has checked
// MaxConcurrent.
func (s *Source) start(ctx context.Context, t *target, now time.Time) {
	ctx, t.cancel = context.WithCancel(ctx)
	cfg, node, slow := s.settings, t.node, t.timeouts > 0
	t.started, t.timeout = now, cfg.Timeout
	s.inFlight++
	if slow {
		s.slowInFlight++
	}
	scheduleDelay.Observe(now.Sub(t.Due()).Seconds())
	scrapesInFlight.Inc()
	s.scrapes.Go(func() {
		o := s.scrape(ctx, t, node, cfg)
		s.finish(ctx, t, slow, o)
	})
}

// finish records the result of a scrape, nil if it was canceled, and schedules the
// next one.
func (s *Source) finish(ctx context.Context, t *target, slow bool, o *scrapeResult) {
	scrapesInFlight.Dec()
	if o != nil {
		o.count()
	}
	s.mu.Lock()
	t.cancel()
	t.cancel = nil
	if s.inFlight >= s.settings.MaxConcurrent || slow {
		// Others may wait for the slot.
		s.wake.Set()
	}
	s.inFlight--
	if slow {
		s.slowInFlight--
		now := s.clock.Now()
		s.slowFrom = now.Add(now.Sub(t.started))
	}
	var log func(context.Context)
	if o != nil && !t.removed {
		log = s.recordResult(t, o)
	}
	if t.removed {
		t.connection.closeIdle()
	} else {
		s.schedule(t, s.clock.Now())
	}
	s.mu.Unlock()
	if log != nil {
		log(ctx)
	}
}

// recordResult updates the target from the result of a scrape, and returns a function that logs
// what changed, or nil. The caller holds s.mu.
func (s *Source) recordResult(t *target, o *scrapeResult) func(context.Context) {
	failed, skips, first := t.failed, t.skips, !t.scraped
	t.scraped = true
	t.skips = o.stats.reasons()
	if o.failure != nil {
		t.failed = o.failure.reason
		at := ""
		if o.url != "" {
			at = " at " + o.url
		}
		t.message = fmt.Sprintf("node %s%s: %v", t.name, at, o.failure)
		t.sampleAge = o.failure.sampleAge
	} else {
		t.failed, t.message = "", ""
	}
	if o.failure == nil || o.failure.reason == v1alpha1.ScrapePodsWithoutMetrics {
		t.podsWithoutMetrics = o.podsWithoutMetrics
		if o.sample.After(t.sample) {
			t.samples = min(t.samples+1, 2)
		}
		t.sample, t.nodeSample, t.incomplete = o.sample, o.nodeSample, o.incomplete
		if t.firstSuccess.IsZero() {
			t.firstSuccess = o.start
		}
		if o.nodeSample {
			t.refreshes.Observe(o.start, o.sample)
		}
	}
	if t.failed == v1alpha1.ScrapeTimeout {
		t.timeouts++
	} else {
		t.timeouts = 0
	}
	return s.changeLog(t, o, failed, skips, first)
}

// schedule queues a target for its next scrape. The caller holds s.mu.
//
// The slots of a node are a grid that depends only on the interval and the node.
// So nodes are spread also after a change of the interval, and a late scrape
// does not shift the next one.
func (s *Source) schedule(t *target, now time.Time) {
	interval := s.settings.Interval
	switch {
	case t.slot.IsZero():
		s.queueAt(t, now, now.Add(t.phaseIn(firstSpread)))
		return
	case t.warmingUp(now) && interval > warmUpInterval:
		t.warmUp = true
		s.queueAt(t, now, now.Add(warmUpInterval))
		return
	case t.samples < 2:
		interval = min(interval, noRatesInterval)
	}
	from := t.slot
	if from.Before(now.Add(-interval)) || from.After(now.Add(interval)) {
		// The interval has changed.
		from = now
	}
	if t.warmUp {
		// Not at once: a rate over a second or two says little.
		t.warmUp, from = false, now.Add(warmUpInterval)
	}
	if t.timeouts > 1 {
		from = now.Add(backoff(t.timeouts, interval) - interval)
	}
	slots := schedule.Schedule{Interval: interval, Phase: t.phaseIn(interval)}
	slot := slots.Next(from)
	due := t.refreshes.Next(slot, interval)
	if !due.After(now) {
		slot = slots.Next(now)
		due = t.refreshes.Next(slot, interval)
	}
	s.queueAt(t, slot, due)
}

// queueAt queues a target for a scrape that uses the slot. The caller holds s.mu.
func (s *Source) queueAt(t *target, slot, due time.Time) {
	t.slot = slot
	s.queueOf(t).Put(t, due)
	if ceil(due).Before(s.nextRun) {
		s.wake.Set()
	}
}

// warmingUp reports whether the next scrape of a new node is likely to complete its pods.
func (t *target) warmingUp(now time.Time) bool {
	return t.failed == "" && !t.firstSuccess.IsZero() && now.Sub(t.firstSuccess) < warmUpTime && (t.samples < 2 || t.incomplete)
}

// backoff returns the time between scrapes of a node after consecutive timeouts:
// twice the interval, then four times.
func backoff(timeouts int, interval time.Duration) time.Duration {
	wait := 2 * interval
	if timeouts > 2 {
		wait = 4 * interval
	}
	return min(wait, max(maxBackoff, interval))
}

func (s *Source) queueOf(t *target) *delayqueue.Queue[*target] {
	if t.timeouts > 0 {
		return &s.slowTargets
	}
	return &s.queue
}

func (s *Source) unqueue(t *target) { s.queueOf(t).Remove(t) }

// upkeep removes what is too old from the store and updates the gauges.
func (s *Source) upkeep() {
	storePoints.WithLabelValues("node").Set(float64(s.store.Nodes.Sweep()))
	storePoints.WithLabelValues("pod").Set(float64(s.store.Pods.Sweep()))
	s.updateGauges()
}

// stop waits for the running scrapes and closes idle connections.
func (s *Source) stop() {
	s.scrapes.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRun = time.Time{}
	for _, t := range s.targets {
		t.connection.closeIdle()
	}
}

// Alive returns an error if the scheduler is stuck or a scrape does not end. It
// returns nil before and after Run.
func (s *Source) Alive(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastRun.IsZero() {
		return nil
	}
	if silent := now.Sub(s.lastRun); silent > stuckAfter {
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
