// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
)

// Settings are those that may change.
type Settings struct {
	// Interval between two looks for the series of a matcher.
	Interval time.Duration
	// MaxAge is how long ago the newest sample of a series may be. Series are
	// forgotten at most two intervals later than that.
	MaxAge time.Duration
}

// Discovery looks for series. Its methods may be called at any time, also before Run.
type Discovery struct {
	lookup Lookup
	clock  clock.WithTicker
	wake   chan struct{}

	mu       sync.Mutex
	settings Settings
	matchers map[string]*matcher
	observe  func(matcher string)
}

// NewDiscovery returns a Discovery that looks for nothing until it is given matchers.
func NewDiscovery(lookup Lookup, c clock.WithTicker, s Settings) *Discovery {
	return &Discovery{lookup: lookup, clock: c, settings: s, wake: make(chan struct{}, 1), matchers: map[string]*matcher{}}
}

// Apply changes the settings, for looks from now on.
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
	d.nudge()
}

// Again looks for everything at once, as after a change of the server.
func (d *Discovery) Again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for text, m := range d.matchers {
		if m.cancel != nil {
			m.cancel()
		}
		// What the look under way finds is dropped with its state.
		d.matchers[text] = &matcher{text: text, phase: m.phase, due: d.clock.Now(), found: m.found}
	}
	d.nudge()
}

// Recovered says that the source answers again: what could not be learnt meanwhile is
// looked for now. A look that fails for all that waits as long as it did, until it
// succeeds or maxRetry has passed: it may be what the source died of.
func (d *Discovery) Recovered() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	for _, m := range d.matchers {
		switch {
		case m.failures == 0 || now.Sub(m.recovered) < maxRetry:
			continue
		case m.cancel != nil: // it may hang yet
			m.failures = 0
		}
		// How long it took while the source was ill says nothing of how long it takes.
		m.recovered, m.due, m.took = now, now, 0
	}
	d.nudge()
}

// Follow sets the matchers that are looked up, all of them: series selectors, such as
// those of rules. New ones are looked up at once, and those that are missing are
// forgotten. The same matcher may be given more than once.
func (d *Discovery) Follow(matchers []string) {
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
			d.matchers[text] = &matcher{text: text, phase: phase(text), due: d.clock.Now(), found: &Found{}}
		}
	}
	d.nudge()
}

// Observe has f called with each matcher of which something else became known: its
// series, or how the looks for them fare. Calls come one at a time, from Run. There is
// one observer, which is set before Run.
func (d *Discovery) Observe(f func(matcher string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.observe = f
}

// Found returns what is known of a matcher's series; of one that is not followed, nothing.
func (d *Discovery) Found(text string) Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.matchers[text]; m != nil {
		return *m.found
	}
	return Found{}
}

// result is a look that has ended.
type result struct {
	matcher *matcher
	look    *look
	from    time.Time
	at      time.Time
	err     error
}

// Run looks for series until the context ends. It is called once.
func (d *Discovery) Run(ctx context.Context) {
	var looks sync.WaitGroup
	defer looks.Wait()
	results := make(chan result)
	timer := d.clock.NewTimer(idle)
	defer timer.Stop()
	places := &places{}
	for {
		due := d.start(ctx, &looks, places, results)
		timer.Reset(due)
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		case <-d.wake:
		case r := <-results:
			places.free(r.matcher)
			if ctx.Err() == nil {
				d.settle(r)
			}
		}
	}
}

// idle is how long Run sleeps where nothing is due.
const idle = time.Hour

// start begins the looks that are due, and returns the time until the next one.
func (d *Discovery) start(ctx context.Context, looks *sync.WaitGroup, places *places, results chan<- result) time.Duration {
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
			return min(wait, places.slower(now))
		}
		if !places.take(now, m) {
			continue
		}
		from := now.Add(-d.settings.MaxAge)
		if m.kinds != nil {
			// Only what is new; an interval more, for samples that arrive late.
			from = later(from, m.found.Time.Add(-d.settings.Interval))
		}
		lookCtx, cancel := context.WithCancel(ctx)
		m.cancel = cancel
		looks.Go(func() {
			defer cancel()
			r := result{matcher: m, look: newLook(), from: from, at: now}
			r.err = d.lookup(lookCtx, m.text, from, now, r.look.visit)
			select {
			case results <- r:
			case <-ctx.Done():
			}
		})
	}
	return min(idle, places.slower(now))
}

// settle takes in the result of a look, and tells of it where it is news.
func (d *Discovery) settle(r result) {
	d.mu.Lock()
	m := r.matcher
	m.cancel = nil
	m.took = d.clock.Since(r.at)
	if d.matchers[m.text] != m {
		d.mu.Unlock()
		return
	}
	next := *m.found
	incomplete := errors.Is(r.err, ErrCut)
	if incomplete {
		r.err = nil
	}
	next.Err = r.err
	if r.err == nil {
		m.failures, m.recovered = 0, time.Time{}
		next.Cut = m.merge(r, d.settings) || r.look.cut || incomplete
		next.Time, next.Series = r.at, m.series()
	} else {
		m.failures++
	}
	m.due = later(d.after(m), d.clock.Now().Add(restFactor*m.took))
	news := m.found.Time.IsZero() != next.Time.IsZero() || m.found.Cut != next.Cut || text(m.found.Err) != text(next.Err) ||
		!slices.EqualFunc(m.found.Series, next.Series, func(a, b Series) bool { return a.compare(b) == 0 && a.Count == b.Count })
	if !news {
		// Equal slices are kept, so that readers may compare cheaply.
		next.Series = m.found.Series
	}
	m.found = &next
	observe := d.observe
	d.mu.Unlock()
	if news && observe != nil {
		observe(m.text)
	}
}

const (
	// firstRetry is the time until a failed look is made again.
	firstRetry = 5 * time.Second
	// maxRetry bounds it, unless the interval is longer.
	maxRetry = 10 * time.Minute
	// restFactor is how much longer than a look takes the next one is waited for: one
	// that is dear for us and the server is not under way all the time.
	restFactor = 4
)

// after is when a matcher is due next. The caller holds d.mu.
//
// The first retry comes soon, as most failures are short; then the wait doubles, past
// the interval too, so that a look which is too dear for its server does not go on
// costing it.
func (d *Discovery) after(m *matcher) time.Time {
	now, interval := d.clock.Now(), d.settings.Interval
	if m.failures > 0 {
		wait := firstRetry << min(m.failures-1, 10)
		return now.Add(min(wait, max(maxRetry, interval)))
	}
	// The matcher's own place in the interval, so that looks are spread.
	start := now.Truncate(interval).Add(time.Duration(m.phase * float64(interval)))
	for !start.After(now) {
		start = start.Add(interval)
	}
	return start
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// nudge wakes Run.
func (d *Discovery) nudge() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
