// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
)

// logging is a context whose lines go to a channel.
func logging(t *testing.T, lines chan<- string) context.Context {
	return klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines <- args }, funcr.Options{}))
}

// logged returns the lines that are in a channel.
func logged(lines <-chan string) []string {
	var got []string
	for len(lines) > 0 {
		got = append(got, <-lines)
	}
	return got
}

// TestLog has the lines of a watch.
func TestLog(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "one", "app=web")
	w.store("a", "one", 1)
	lines := make(chan string, 8)
	watcher, err := w.hub.Watch(deadline{Context: logging(t, lines), at: t0.Add(10 * time.Minute)}, Request{
		Selection: selecting(t, "a", "app=web", "metadata.name=one"), Bookmarks: true,
		Metrics: NewMetrics(API{"metrics.k8s.io", "v1", "pods"}),
		Client:  Client{User: "jane", UserAgent: strings.Repeat("x", 300)},
	})
	if err != nil {
		t.Fatal(err)
	}
	read(t, watcher)
	w.pass(1500 * time.Millisecond)
	watcher.Stop()
	watcher.Stop()
	watch := `"namespace"="a" "group"="metrics.k8s.io" "version"="v1" "resource"="pods" "labelSelector"="app=web" ` +
		`"fieldSelector"="metadata.name=one" "user"="jane" "userAgent"="` + strings.Repeat("x", 253) + `…" "bookmarks"=true "initialEventsEnd"=false`
	want := []string{
		`"level"=0 "msg"="Watch began" ` + watch + ` "timeout"="10m0s"`,
		`"level"=0 "msg"="Watch ended" ` + watch + ` "reason"="Abandoned" "duration"="1.5s" "events"=1`,
	}
	if diff := cmp.Diff(want, logged(lines)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLogWatched: a watch of something else than objects of a namespace says what that is.
func TestLogWatched(t *testing.T) {
	w := newWorld(t)
	lines := make(chan string, 8)
	if _, err := w.hub.Watch(logging(t, lines), Request{
		Selection: Selection{Namespace: "a key"}, Metrics: NewMetrics(API{"external.metrics.k8s.io", "v1beta1", ""}),
		Watched: []any{"watched", "external metric"},
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{`"level"=0 "msg"="Watch began" "watched"="external metric" "group"="external.metrics.k8s.io" "version"="v1beta1" "resource"="" ` +
		`"user"="" "userAgent"="" "bookmarks"=false "initialEventsEnd"=false`}
	if diff := cmp.Diff(want, logged(lines)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLogLimit opens and ends a thousand watches in a second: some lines, a
// count of the others, and room for those that broke.
func TestLogLimit(t *testing.T) {
	w := newWorld(t)
	w.hub.Apply(Settings{BookmarkInterval: time.Hour, StallTimeout: time.Minute})
	lines := make(chan string, 4000)
	ctx := logging(t, lines)
	open := func() *Watcher {
		watcher, err := w.hub.Watch(ctx, Request{Metrics: w.metrics})
		if err != nil {
			t.Fatal(err)
		}
		return watcher
	}
	count := func() map[string]int {
		got := map[string]int{}
		for _, line := range logged(lines) {
			for _, part := range []string{"Watch began", "Watch ended", `"reason"="Stalled"`, `"unlogged"=`} {
				if strings.Contains(line, part) {
					got[part]++
				}
			}
		}
		return got
	}
	for range 1000 {
		open().Stop()
	}
	if diff := cmp.Diff(map[string]int{"Watch began": 25, "Watch ended": 25}, count()); diff != "" {
		t.Errorf("in the storm (-want +got):\n%s", diff)
	}
	open() // which nobody reads
	w.pass(2 * time.Second)
	open().Stop()
	if diff := cmp.Diff(map[string]int{"Watch began": 1, "Watch ended": 1, `"unlogged"=`: 2}, count()); diff != "" {
		t.Errorf("after it (-want +got):\n%s", diff)
	}
	for range 1000 {
		open().Stop()
	}
	count()
	w.pass(2 * time.Minute)
	if got := count()[`"reason"="Stalled"`]; got != 1 {
		t.Errorf("%d lines of the watch that stalled", got)
	}
}
