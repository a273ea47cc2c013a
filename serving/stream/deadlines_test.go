// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"
)

// event is what a client took, and when.
type event struct {
	At   time.Duration
	Text string
}

// follow reads a watch for a while.
func (w *world) follow(watcher *Watcher, d time.Duration) []event {
	var events []event
	begin := w.clock.Now()
	for {
		at := w.clock.Now().Sub(begin)
		for _, text := range read(w.t, watcher) {
			events = append(events, event{at, text})
			if text == "closed" {
				return events
			}
		}
		if at >= d {
			return events
		}
		w.pass(tick)
	}
}

func TestTimetable(t *testing.T) {
	const interval = 10 * time.Second
	tests := map[string]struct {
		request  Request
		timeout  time.Duration
		settings Settings
		pods     int
		want     []event
	}{
		"no bookmarks unless asked for": {timeout: 25 * time.Second},
		"bookmarks": {
			request: Request{Bookmarks: true},
			want:    []event{{10 * time.Second, "BOOKMARK"}, {20 * time.Second, "BOOKMARK"}, {30 * time.Second, "BOOKMARK"}},
		},
		"a bookmark before the client's timeout": {
			request: Request{Bookmarks: true}, timeout: 15 * time.Second,
			want: []event{{10 * time.Second, "BOOKMARK"}, {13 * time.Second, "BOOKMARK"}, {20 * time.Second, "BOOKMARK"}, {30 * time.Second, "BOOKMARK"}},
		},
		"a short timeout": {
			request: Request{Bookmarks: true}, timeout: time.Second, settings: Settings{MaxAge: 2 * time.Second},
			want: []event{{500 * time.Millisecond, "BOOKMARK"}, {2 * time.Second, "BOOKMARK"}, {2 * time.Second, "closed"}},
		},
		"the end of the initial events": {
			request: Request{Bookmarks: true, InitialEventsEnd: true}, pods: 1, settings: Settings{MaxAge: 12 * time.Second},
			want: []event{
				{0, "a/web 1"}, {0, "BOOKMARK end"}, {10 * time.Second, "BOOKMARK"},
				{12 * time.Second, "ERROR 504 Timeout"}, {12 * time.Second, "closed"},
			},
		},
		"the end of no initial events": {
			request: Request{Bookmarks: true, InitialEventsEnd: true}, timeout: 10 * time.Second,
			want: []event{{0, "BOOKMARK end"}, {8 * time.Second, "ERROR 504 Timeout"}, {8 * time.Second, "closed"}},
		},
		"the end of initial events that the client did not ask for": {
			request: Request{Bookmarks: true, InitialEventsEnd: true, CleanEnd: true}, timeout: 9 * time.Second, settings: Settings{MaxAge: 12 * time.Second},
			want: []event{
				{0, "BOOKMARK end"}, {7 * time.Second, "BOOKMARK"}, {10 * time.Second, "BOOKMARK"},
				{12 * time.Second, "BOOKMARK"}, {12 * time.Second, "closed"},
			},
		},
		"a maximum age": {
			request: Request{Bookmarks: true}, settings: Settings{MaxAge: 5 * time.Second},
			want: []event{{5 * time.Second, "BOOKMARK"}, {5 * time.Second, "closed"}},
		},
		"a maximum age without bookmarks": {
			settings: Settings{MaxAge: 5 * time.Second},
			want:     []event{{5 * time.Second, "closed"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.settings.BookmarkInterval = interval
			w.hub.Apply(test.settings)
			if test.pods > 0 {
				w.pod("a", "web", "")
				w.store("a", "web", 1)
			}
			watcher := w.watch(test.request, test.timeout)
			if diff := cmp.Diff(test.want, w.follow(watcher, 30*time.Second)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoBookmarkBeforeSync: a bookmark amid the initial events would tell a client
// that it has them all.
func TestNoBookmarkBeforeSync(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "web", "")
	w.store("a", "web", 1)
	w.hub.Apply(Settings{BookmarkInterval: time.Second})
	watcher := w.watch(Request{Bookmarks: true}, 0)
	w.pass(5 * time.Second)
	if diff := cmp.Diff([]string{"a/web 1"}, read(t, watcher)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBookmarkWhileBusy: a client that has points to take, as one of many pods always
// has, gets its bookmarks all the same.
func TestBookmarkWhileBusy(t *testing.T) {
	tests := map[string]struct {
		timeout time.Duration
		happens func(*world)
		want    []string
	}{
		"at the interval":             {happens: func(w *world) { w.pass(20 * time.Second) }, want: []string{"a/web 2", "BOOKMARK"}},
		"before the client's timeout": {timeout: 5 * time.Second, happens: func(w *world) { w.pass(4 * time.Second) }, want: []string{"a/web 2", "BOOKMARK"}},
		"at the end": {
			happens: func(w *world) { w.hub.Drain(0); w.pass(40 * time.Second) }, want: []string{"a/web 2", "BOOKMARK", "closed"},
		},
		"at the end, after another": {
			happens: func(w *world) { w.pass(20 * time.Second); w.hub.Drain(0); w.pass(tick) },
			want:    []string{"a/web 2", "BOOKMARK", "BOOKMARK", "closed"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.hub.Apply(Settings{BookmarkInterval: 20 * time.Second})
			w.pod("a", "web", "")
			w.store("a", "web", 1)
			watcher := w.watch(Request{Bookmarks: true}, test.timeout)
			read(t, watcher)
			w.store("a", "web", 2)
			test.happens(w)
			if diff := cmp.Diff(test.want, read(t, watcher)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestBookmarksDoNotPileUp: a client that does not read for several intervals gets one bookmark, and
// the next one after it has read that.
func TestBookmarksDoNotPileUp(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Second})
	w.pod("a", "web", "")
	watcher := w.watch(Request{Bookmarks: true}, 0)
	read(t, watcher)
	for value := range 5 {
		w.store("a", "web", value)
		w.pass(3 * time.Second)
		if diff := cmp.Diff([]string{fmt.Sprintf("a/web %d", value), "BOOKMARK"}, read(t, watcher)); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", value, diff)
		}
	}
}

// TestLastBookmarkFollowsTheInitialEvents: a client may read them until the end of its watch.
func TestLastBookmarkFollowsTheInitialEvents(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour})
	w.pod("a", "web", "")
	w.store("a", "web", 1)
	watcher := w.watch(Request{Bookmarks: true}, 10*time.Second)
	w.pass(9 * time.Second)
	got := read(t, watcher)
	w.pass(tick)
	if diff := cmp.Diff([]string{"a/web 1", "BOOKMARK"}, append(got, read(t, watcher)...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpread(t *testing.T) {
	w := newWorld(t)
	draws := 0.0
	w.hub.random = func() float64 { draws += 0.25; return draws }
	w.hub.Apply(Settings{BookmarkInterval: time.Minute})
	var watchers []*Watcher
	for range 3 {
		watchers = append(watchers, w.watch(Request{}, 0))
	}
	draws = 0
	w.hub.Drain(8 * time.Second)
	ends := map[time.Duration]int{}
	for at := tick; at <= 8*time.Second; at += tick {
		w.pass(tick)
		for _, watcher := range watchers {
			if got := read(t, watcher); len(got) > 0 && got[0] == "closed" {
				ends[at]++
				watcher.Stop()
			}
		}
		watchers = open(watchers)
	}
	if diff := cmp.Diff(map[time.Duration]int{2 * time.Second: 1, 4 * time.Second: 1, 6 * time.Second: 1}, ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	released := 0
	_, err := w.hub.Watch(t.Context(), Request{Metrics: w.metrics, Release: func() { released++ }})
	if seconds, retry := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !retry || seconds != 3 || released != 1 {
		t.Errorf("a new watch while draining: %v, released %d times", err, released)
	}
}

func open(watchers []*Watcher) []*Watcher {
	var left []*Watcher
	for _, w := range watchers {
		if !w.stopped.Load() {
			left = append(left, w)
		}
	}
	return left
}

// TestStalled: a client that takes nothing is cut off, one that has nothing to
// take is not, nor one that was idle for long when the next point came.
func TestStalled(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: time.Minute})
	w.pod("a", "web", "")
	aborted := map[string]int{}
	abort := func(name string) func() { return func() { aborted[name]++ } }
	reading := w.watch(Request{Abort: abort("reading")}, 0)
	w.watch(Request{Selection: selecting(t, "a", "", ""), Abort: abort("stuck")}, 0)
	idle := w.watch(Request{Selection: selecting(t, "b", "", ""), Abort: abort("idle")}, 0)
	read(t, idle)
	for range 20 {
		w.store("a", "web", 1)
		read(t, reading)
		w.pass(15 * time.Second)
	}
	// It has nothing to read for five minutes; then something comes.
	w.pod("b", "web", "")
	w.store("b", "web", 1)
	w.pass(tick)
	if diff := cmp.Diff(map[string]int{"stuck": 1}, aborted); diff != "" {
		t.Errorf("aborted (-want +got):\n%s", diff)
	}
	if n, _ := w.hub.Watchers(); n != 2 || w.counted()["watch_errors_total Stalled"] != 1 {
		t.Errorf("%d watchers, counted %v", n, w.counted())
	}
}

// resetClock is a clock whose time of day somebody sets.
type resetClock struct {
	*clocktesting.FakeClock
	by time.Duration
}

func (c *resetClock) Now() time.Time { return c.FakeClock.Now().Add(c.by) }

// TestTimeOfDayIsSet, back or forth: everything happens when it would have.
func TestTimeOfDayIsSet(t *testing.T) {
	for _, by := range []time.Duration{-10 * time.Minute, 10 * time.Minute, 2 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			w := newWorld(t)
			c := &resetClock{FakeClock: w.clock}
			w.hub = NewHub(collectionSource{w.collection}, c, func() float64 { return 1 }, Settings{})
			w.hub.Apply(Settings{BookmarkInterval: 10 * time.Second, StallTimeout: time.Minute, MaxAge: time.Hour})
			watcher, aborted := w.watch(Request{Bookmarks: true, Abort: func() { t.Error("it was taken for stalled") }}, 0), false
			w.watch(Request{Selection: selecting(t, "", "app", ""), Abort: func() { aborted = true }}, 0)
			c.by = by
			read(t, watcher)
			got := w.follow(watcher, 12*time.Second)
			for range 5 {
				w.pass(10 * time.Second)
				read(t, watcher)
			}
			w.hub.Drain(0)
			want := []event{{10 * time.Second, "BOOKMARK"}}
			if diff := cmp.Diff(want, got); diff != "" || !aborted {
				t.Errorf("a client that takes nothing is cut off: %t; events (-want +got):\n%s", aborted, diff)
			}
			if diff := cmp.Diff([]event{{tick, "BOOKMARK"}, {tick, "closed"}}, w.follow(watcher, time.Second)); diff != "" {
				t.Errorf("the end (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStalledAtTheEnd: a client that does not even read that the watch has ended.
func TestStalledAtTheEnd(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: time.Minute, MaxAge: 10 * time.Second})
	aborted := 0
	w.watch(Request{Abort: func() { aborted++ }}, 0)
	w.pass(2 * time.Minute)
	if n, _ := w.hub.Watchers(); aborted != 1 || n != 0 {
		t.Errorf("aborted %d times, %d watchers left", aborted, n)
	}
}

// TestNothingLeaks ends watches in each way and looks for what is left.
func TestNothingLeaks(t *testing.T) {
	ends := map[string]func(*world, *Watcher, context.CancelFunc){
		"stop":       func(_ *world, watcher *Watcher, _ context.CancelFunc) { watcher.Stop() },
		"stop twice": func(_ *world, watcher *Watcher, _ context.CancelFunc) { watcher.Stop(); watcher.Stop() },
		"context":    func(_ *world, _ *Watcher, cancel context.CancelFunc) { cancel() },
		"stall":      func(w *world, _ *Watcher, _ context.CancelFunc) { w.pass(3 * time.Minute) },
		"end, then stop": func(w *world, watcher *Watcher, _ context.CancelFunc) {
			w.hub.endAll(0, Disabled)
			w.pass(tick)
			watcher.Stop()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("a", "web", "app=web")
			w.store("a", "web", 1)
			selections := []Selection{
				{}, selecting(t, "a", "", ""), selecting(t, "a", "app=web", ""), selecting(t, "", "app in (web,db)", ""),
				selecting(t, "", "", "metadata.name=web"), selecting(t, "a", "", "metadata.name=web"), selecting(t, "", "app", ""),
			}
			released := make(chan int, 2*len(selections))
			for i, s := range selections {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				watcher, err := w.hub.Watch(ctx, Request{Metrics: w.metrics, Selection: s, Release: func() { released <- i }})
				if err != nil {
					t.Fatal(err)
				}
				end(w, watcher, cancel)
			}
			seen := map[int]int{}
			for range selections { // a context's end comes on another goroutine
				seen[<-released]++
			}
			w.pass(time.Minute)
			watchers, groups := w.hub.Watchers()
			if watchers != 0 || groups != 0 || len(w.hub.index.buckets) != 0 || w.hub.index.byLabel != 0 || w.hub.due.queue.Len() != 0 {
				t.Errorf("left: %d watchers, %d groups, index %v, %d due", watchers, groups, w.hub.index, w.hub.due.queue.Len())
			}
			if len(seen) != len(selections) || len(released) != 0 {
				t.Errorf("released %v and %d more, want each of %d once", seen, len(released), len(selections))
			}
		})
	}
}
