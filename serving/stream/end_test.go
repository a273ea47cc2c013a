// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// brokenPipe is a connection that takes nothing.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestEndReasons ends a watch in each way: what is logged as the reason, and which
// are errors.
func TestEndReasons(t *testing.T) {
	tests := map[EndReason]struct {
		settings Settings
		end      func(w *world, watcher *Watcher, cancel context.CancelFunc)
		error    bool
	}{
		ClientClosed: {
			end: func(_ *world, _ *Watcher, cancel context.CancelFunc) { cancel() },
		},
		TimedOut: { // 2 s before the client's own timeout, to say that it is to list anew
			end: func(w *world, watcher *Watcher, _ context.CancelFunc) { w.pass(58 * time.Second); watcher.Stop() },
		},
		AgedOut: {
			settings: Settings{MaxAge: 50 * time.Second},
			end:      func(w *world, watcher *Watcher, _ context.CancelFunc) { w.pass(50 * time.Second); watcher.Stop() },
		},
		ShutDown: {
			end: func(w *world, watcher *Watcher, _ context.CancelFunc) { w.hub.Drain(0); w.pass(tick); watcher.Stop() },
		},
		Disabled: {
			end: func(w *world, watcher *Watcher, _ context.CancelFunc) {
				w.hub.endAll(0, Disabled)
				w.pass(tick)
				watcher.Stop()
			},
		},
		Revoked: {
			end: func(_ *world, watcher *Watcher, _ context.CancelFunc) {
				watcher.Revoke(apierrors.NewForbidden(schema.GroupResource{}, "", nil))
				watcher.Stop()
			},
		},
		Stalled: {
			settings: Settings{StallTimeout: 30 * time.Second},
			end: func(w *world, _ *Watcher, _ context.CancelFunc) {
				w.store("a", "one", 2)
				w.pass(50 * time.Second)
			},
			error: true,
		},
		WriteFailed: {
			end: func(w *world, watcher *Watcher, _ context.CancelFunc) {
				w.store("a", "one", 2)
				fails(t, watcher, brokenPipe{}, "broken pipe")
			},
			error: true,
		},
		Abandoned: {
			end: func(_ *world, watcher *Watcher, _ context.CancelFunc) { watcher.Stop() },
		},
	}
	for reason, test := range tests {
		t.Run(string(reason), func(t *testing.T) {
			w, m := newWorld(t), newMetrics(t)
			w.pod("a", "one", "")
			test.settings.BookmarkInterval = time.Hour
			w.hub.Apply(test.settings)
			lines := make(chan string, 8)
			ctx, cancel := context.WithCancel(logging(t, lines))
			defer cancel()
			watcher, err := w.hub.Watch(deadline{Context: ctx, at: t0.Add(time.Minute)},
				Request{Metrics: m, InitialEventsEnd: true, NewBookmark: bookmark})
			if err != nil {
				t.Fatal(err)
			}
			read(t, watcher)
			<-lines // that it began
			test.end(w, watcher, cancel)
			if line := <-lines; !strings.Contains(line, `"reason"="`+string(reason)+`"`) {
				t.Errorf("logged %s", line)
			}
			want := 0.0
			if test.error {
				want = 1
			}
			got := series(t, m.api)
			if got["watch_errors_total "+string(reason)] != want || got["watch_connections_open"] != 0 || got["watch_duration_seconds count"] != 1 {
				t.Errorf("counted %v", got)
			}
		})
	}
}

// fails writes the next event, which must not work, as the watch handler does it.
func fails(t *testing.T, w *Watcher, out io.Writer, want string) {
	t.Helper()
	event := <-w.ResultChan()
	err := event.Object.(*Watcher).CacheEncode("text", nil, out)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	w.Stop()
}

// TestClientLeavesWhileWritten: a write that fails since the client went away is
// no error.
func TestClientLeavesWhileWritten(t *testing.T) {
	w, m := newWorld(t), newMetrics(t)
	w.pod("a", "one", "")
	ctx, cancel := context.WithCancel(quiet(t))
	watcher, err := w.hub.Watch(ctx, Request{Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	read(t, watcher)
	w.store("a", "one", 1)
	event := <-watcher.ResultChan()
	cancel()
	if err := event.Object.(*Watcher).CacheEncode("text", nil, brokenPipe{}); err == nil {
		t.Error("the error of the write is lost")
	}
	watcher.Stop()
	if got := series(t, m.api)["watch_errors_total WriteFailed"]; got != 0 {
		t.Errorf("%v errors", got)
	}
}

// TestUnencodable: a data point that cannot be encoded costs its own event, in the
// initial ones as well as later, and is told of.
func TestUnencodable(t *testing.T) {
	w, m := newWorld(t), newMetrics(t)
	lines := make(chan string, 8)
	for _, name := range []string{"one", unencodable, "zero"} {
		w.pod("a", name, "")
		w.store("a", name, 1)
	}
	watcher, err := w.hub.Watch(logging(t, lines), Request{Metrics: m, Bookmarks: true, InitialEventsEnd: true, NewBookmark: bookmark})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if diff := cmp.Diff([]string{"a/one 1", "a/zero 1", "BOOKMARK end"}, read(t, watcher)); diff != "" {
		t.Errorf("initial events (-want +got):\n%s", diff)
	}
	<-lines // that it began
	if line := <-lines; !strings.Contains(line, errUnencodable.Error()) || !strings.Contains(line, `"name"="`+unencodable+`"`) {
		t.Errorf("logged %s", line)
	}
	w.store("a", unencodable, 2)
	w.store("a", "one", 2)
	if diff := cmp.Diff([]string{"a/one 2"}, read(t, watcher)); diff != "" {
		t.Errorf("live events (-want +got):\n%s", diff)
	}
	got := series(t, m.api)
	if got["watch_errors_total EncodeFailed"] != 2 || got["watch_connections_open"] != 1 {
		t.Errorf("counted %v", got)
	}
}

// TestRevoke: nothing that was not sent before is sent, but for the reason.
func TestRevoke(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for name, pending := range map[string]bool{"with points to take": true, "with none": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: 30 * time.Second})
			w.pod("a", "one", "")
			w.store("a", "one", 1)
			watcher := w.watch(Request{Bookmarks: true}, 0)
			read(t, watcher)
			if pending {
				w.store("a", "one", 2)
			}
			watcher.Revoke(forbidden)
			w.store("a", "one", 3)
			watcher.Revoke(forbidden)
			if diff := cmp.Diff([]string{"ERROR 403 Forbidden", "closed"}, read(t, watcher)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			watcher.Stop()
			watcher.Revoke(forbidden)
		})
	}
}

// TestRevokeOfSilentClient: a client that never reads its end is let go of.
func TestRevokeOfSilentClient(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: 30 * time.Second})
	w.pod("a", "one", "")
	w.store("a", "one", 1)
	watcher := w.watch(Request{}, 0)
	watcher.Revoke(apierrors.NewForbidden(schema.GroupResource{}, "", nil))
	w.pass(2 * time.Minute)
	if open, _ := w.hub.Watchers(); open != 0 {
		t.Errorf("%d watches are open", open)
	}
}
