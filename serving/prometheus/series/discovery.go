// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/schedule"
	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Settings may change while a Discovery runs.
type Settings struct {
	// Interval between two lookups of a matcher.
	Interval time.Duration
	// MaxAge limits the age of a series' newest sample. Series are removed at most two
	// intervals later than that.
	MaxAge time.Duration
}

// Discovery looks up series periodically. Its methods may be called at any time, also before Run.
type Discovery struct {
	lookup Lookup
	clock  clock.WithTicker
	wake   wake.Signal

	mu       sync.Mutex
	settings Settings
	matchers map[string]*matcher
	onChange func(matcher string)
}

// NewDiscovery returns a Discovery without matchers.
func NewDiscovery(lookup Lookup, c clock.WithTicker, s Settings) *Discovery {
	return &Discovery{lookup: lookup, clock: c, settings: s, wake: wake.NewSignal(), matchers: map[string]*matcher{}}
}

// Apply changes the settings for future lookups.
func (d *Discovery) Apply(s Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s == d.settings {
		return
	}
	d.settings = s
	latest := d.clock.Now().Add(s.Interval)
	for _, m := range d.matchers {
		if m.due.After(latest) {
			m.due = latest
		}
	}
	d.wake.Set()
}

// Restart looks up everything at once, as after a change of the server.
func (d *Discovery) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for text, m := range d.matchers {
		if m.cancel != nil {
			m.cancel()
		}
		// The result of the running lookup is dropped with its matcher.
		d.matchers[text] = &matcher{text: text, due: d.clock.Now(), found: m.found}
	}
	d.wake.Set()
}

// Recovered repeats failed lookups now, because the source answers again. A lookup that fails
// nonetheless keeps its backoff until it succeeds or maxRetry has passed: it may be what
// brought the source down.
func (d *Discovery) Recovered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	for _, m := range d.matchers {
		switch {
		case m.failures == 0 || now.Sub(m.retried) < maxRetry:
			continue
		case m.cancel != nil: // the running lookup may still hang
			m.failures = 0
		}
		// How long it took while the source was failing says nothing about the next one.
		m.retried, m.due, m.took = now, now, 0
	}
	d.wake.Set()
}

// SetMatchers replaces the series selectors that are looked up; duplicates are allowed. New
// ones are looked up at once.
func (d *Discovery) SetMatchers(matchers []string) {
	wanted := sets.New(matchers...)
	d.mu.Lock()
	defer d.mu.Unlock()
	for text, m := range d.matchers {
		if wanted.Has(text) {
			continue
		}
		if m.cancel != nil {
			m.cancel()
		}
		delete(d.matchers, text)
	}
	for text := range wanted {
		if d.matchers[text] == nil {
			d.matchers[text] = &matcher{text: text, due: d.clock.Now(), found: &Found{}}
		}
	}
	d.wake.Set()
}

// OnChange sets the function that Run calls when what was found for a matcher has changed, one
// call at a time. It must be set before Run.
func (d *Discovery) OnChange(f func(matcher string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onChange = f
}

// Found returns what was found for a matcher.
func (d *Discovery) Found(text string) Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.matchers[text]; m != nil {
		return *m.found
	}
	return Found{}
}

// Failing returns a failure if the newest lookup of no matcher succeeded: that of the first matcher
// with one that may be a fault of the source. It returns nil otherwise.
func (d *Discovery) Failing() (failure *query.Failure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := ""
	for text, m := range d.matchers {
		var f *query.Failure
		switch {
		case m.found.Err == nil && !m.found.Time.IsZero():
			return nil
		case errors.As(m.found.Err, &f) && !f.Reason.SourceAnswered() && (failure == nil || text < first):
			failure, first = f, text
		}
	}
	return failure
}

// result is that of a lookup.
type result struct {
	matcher *matcher
	series  *seriesSet
	at      time.Time
	err     error
}

// Run looks up series until the context ends. It is called once.
func (d *Discovery) Run(ctx context.Context) {
	var lookups sync.WaitGroup
	defer lookups.Wait()
	results := make(chan result)
	timer := d.clock.NewTimer(idle)
	defer timer.Stop()
	limiter := &limiter{}
	for {
		timer.Reset(d.startDue(ctx, &lookups, limiter, results))
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		case <-d.wake:
		case r := <-results:
			limiter.release(r.matcher)
			if ctx.Err() == nil {
				d.finish(r)
			}
		}
	}
}

// idle is how long Run sleeps if nothing is due.
const idle = time.Hour

// startDue starts the lookups that are due, and returns the time until it has to be called
// again.
func (d *Discovery) startDue(ctx context.Context, lookups *sync.WaitGroup, limiter *limiter, results chan<- result) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	waiting := make([]*matcher, 0, len(d.matchers))
	for _, m := range d.matchers {
		if m.cancel == nil {
			waiting = append(waiting, m)
		}
	}
	slices.SortFunc(waiting, func(a, b *matcher) int { return a.due.Compare(b.due) })
	for _, m := range waiting {
		if wait := m.due.Sub(now); wait > 0 {
			return min(wait, limiter.untilSlow(now))
		}
		if !limiter.acquire(now, m) {
			continue
		}
		from := now.Add(-d.settings.MaxAge)
		if m.known != nil {
			// Only new samples, with an interval of overlap for those that arrive late.
			from = later(from, m.found.Time.Add(-d.settings.Interval))
		}
		lookupCtx, cancel := context.WithCancel(ctx)
		m.cancel = cancel
		lookups.Go(func() {
			defer cancel()
			r := result{matcher: m, series: newSeriesSet(), at: now}
			r.err = d.lookup(lookupCtx, m.text, from, now, r.series.visit)
			select {
			case results <- r:
			case <-ctx.Done():
			}
		})
	}
	return min(idle, limiter.untilSlow(now))
}

// finish takes the result of a lookup, and calls onChange if something has changed.
func (d *Discovery) finish(r result) {
	d.mu.Lock()
	m := r.matcher
	m.cancel = nil
	m.took = d.clock.Since(r.at)
	if d.matchers[m.text] != m {
		d.mu.Unlock()
		return
	}
	next := *m.found
	truncated := errors.Is(r.err, ErrTruncated)
	if truncated {
		r.err = nil
	}
	next.Err = r.err
	if r.err == nil {
		m.failures, m.retried = 0, time.Time{}
		next.Truncated = m.merge(r, d.settings) || r.series.truncated || truncated
		next.Time, next.Series, next.Ended = r.at, m.series(), m.ended
	} else {
		m.failures++
	}
	m.due = later(d.nextDue(m), d.clock.Now().Add(restFactor*m.took))
	changed := m.found.Time.IsZero() != next.Time.IsZero() || m.found.Truncated != next.Truncated || fmt.Sprint(m.found.Err) != fmt.Sprint(next.Err) ||
		!slices.EqualFunc(m.found.Series, next.Series, func(a, b Series) bool { return a.compare(b) == 0 && a.Count == b.Count })
	if !changed {
		// The same slice tells readers cheaply that nothing has changed.
		next.Series = m.found.Series
	}
	m.found = &next
	onChange := d.onChange
	d.mu.Unlock()
	if changed && onChange != nil {
		onChange(m.text)
	}
}

const (
	// firstRetry is the backoff after the first failure.
	firstRetry = 5 * time.Second
	// maxRetry limits the backoff, unless the interval is longer.
	maxRetry = 10 * time.Minute
	// restFactor times the duration of a lookup is the least time to the next one, so that an
	// expensive one does not run all the time.
	restFactor = 4
)

// nextDue returns when a matcher is due next. The caller holds d.mu.
//
// After a failure the backoff doubles, beyond the interval too, so that a lookup that is too
// expensive for its server does not keep loading it.
func (d *Discovery) nextDue(m *matcher) time.Time {
	now, interval := d.clock.Now(), d.settings.Interval
	if m.failures > 0 {
		return now.Add(min(firstRetry<<min(m.failures-1, 10), max(maxRetry, interval)))
	}
	return schedule.Schedule{Interval: interval, Phase: schedule.Phase(interval, m.text)}.Next(now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
