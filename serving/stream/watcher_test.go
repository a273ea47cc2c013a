// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// TestSelection watches with each kind of selector, initial events and later.
func TestSelection(t *testing.T) {
	tests := map[string]struct {
		namespace, labels, fields string
		first, then               []string
	}{
		"all":                     {"", "", "", []string{"a/db 1", "a/web 1", "b/web 1"}, []string{"a/db 2", "a/web 2", "b/web 2"}},
		"namespace":               {"a", "", "", []string{"a/db 1", "a/web 1"}, []string{"a/db 2", "a/web 2"}},
		"unknown namespace":       {"c", "", "", nil, nil},
		"label":                   {"", "app=web", "", []string{"a/web 1", "b/web 1"}, []string{"a/web 2", "b/web 2"}},
		"label in namespace":      {"b", "app=web", "", []string{"b/web 1"}, []string{"b/web 2"}},
		"label in a set":          {"", "app in (db,web),tier=back", "", []string{"a/db 1"}, []string{"a/db 2"}},
		"label exists":            {"", "tier", "", []string{"a/db 1"}, []string{"a/db 2"}},
		"label does not":          {"", "!tier", "", []string{"a/web 1", "b/web 1"}, []string{"a/web 2", "b/web 2"}},
		"label differs":           {"", "app!=web", "", []string{"a/db 1"}, []string{"a/db 2"}},
		"no label at all":         {"", "app in (x),app in (y)", "", nil, nil},
		"name":                    {"", "", "metadata.name=web", []string{"a/web 1", "b/web 1"}, []string{"a/web 2", "b/web 2"}},
		"name in namespace":       {"b", "", "metadata.name=web", []string{"b/web 1"}, []string{"b/web 2"}},
		"namespace by field":      {"", "", "metadata.namespace=a", []string{"a/db 1", "a/web 1"}, []string{"a/db 2", "a/web 2"}},
		"key by fields":           {"", "", "metadata.namespace=a,metadata.name=db", []string{"a/db 1"}, []string{"a/db 2"}},
		"key and label":           {"a", "app=db", "metadata.name=web", nil, nil},
		"not a name":              {"", "", "metadata.name!=web", []string{"a/db 1"}, []string{"a/db 2"}},
		"not the path's ns":       {"a", "", "metadata.namespace=b", nil, nil},
		"neither namespace":       {"", "", "metadata.namespace!=a", []string{"b/web 1"}, []string{"b/web 2"}},
		"a label, but not a name": {"", "app=web", "metadata.namespace!=a", []string{"b/web 1"}, []string{"b/web 2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.pod("a", "web", "app=web")
			w.pod("a", "db", "app=db,tier=back")
			w.pod("b", "web", "app=web")
			round := func(value int) {
				w.store("a", "db", value)
				w.store("a", "web", value)
				w.store("b", "web", value)
			}
			round(1)
			watcher := w.watch(Request{Selection: selecting(t, test.namespace, test.labels, test.fields)}, 0)
			if diff := cmp.Diff(test.first, read(t, watcher)); diff != "" {
				t.Errorf("initial events (-want +got):\n%s", diff)
			}
			round(2)
			if diff := cmp.Diff(test.then, read(t, watcher)); diff != "" {
				t.Errorf("events after that (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnePendingPoint is about a client that does not read for a while.
func TestOnePendingPoint(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "one", "app=web")
	w.pod("a", "two", "app=web")
	watchers := map[string]*Watcher{
		"all":       w.watch(Request{}, 0),
		"namespace": w.watch(Request{Selection: selecting(t, "a", "", "")}, 0),
		"label":     w.watch(Request{Selection: selecting(t, "", "app=web", "")}, 0),
	}
	for name, watcher := range watchers {
		if got := read(t, watcher); got != nil {
			t.Errorf("%s: %q before anything was stored", name, got)
		}
	}
	for value := range 10 {
		w.store("a", "one", value)
		w.store("a", "two", value)
	}
	for name, watcher := range watchers {
		if diff := cmp.Diff([]string{"a/one 9", "a/two 9"}, read(t, watcher)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	one := w.watch(Request{Selection: selecting(t, "a", "", "metadata.name=one")}, 0)
	read(t, one)
	before := w.counted()
	for value := range 10 {
		w.store("a", "one", value)
	}
	if diff := cmp.Diff([]string{"a/one 9"}, read(t, one)); diff != "" {
		t.Errorf("a single pod (-want +got):\n%s", diff)
	}
	const coalesced, rescans = "watch_coalesced_points_total", "watch_rescans_total"
	if c := w.counted(); c[coalesced]-before[coalesced] != 9 || c[rescans] != before[rescans] {
		t.Errorf("a single pod: counted %v after %v", c, before)
	}
	if c := before; c["watch_events_sent_total live"] != 6 || c[coalesced] == 0 {
		t.Errorf("counted %v", c)
	}
}

// TestNewestAtEncoding: what is written is the newest at the time of writing, not
// at the time at which the event went into the channel.
func TestNewestAtEncoding(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "web", "")
	w.store("a", "web", 1)
	watcher := w.watch(Request{}, 0)
	event := <-watcher.ResultChan()
	w.store("a", "web", 2)
	first := take(t, event)
	if diff := cmp.Diff([]string{"a/web 2"}, append(nonEmpty(first), read(t, watcher)...)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// TestFallBehind stores more than the log holds between two reads.
func TestFallBehind(t *testing.T) {
	const pods = 3 * maxLog
	w := newWorld(t)
	names := make([]string, pods)
	for i := range names {
		names[i] = fmt.Sprintf("p%05d", i)
		w.pod("a", names[i], "")
	}
	watcher := w.watch(Request{}, 0)
	read(t, watcher)
	for round := 1; round <= 10; round++ {
		var want []string
		for _, name := range names {
			w.store("a", name, round)
			want = append(want, fmt.Sprintf("a/%s %d", name, round))
		}
		if diff := cmp.Diff(want, read(t, watcher)); diff != "" {
			t.Fatalf("round %d: not each point once (-want +got):\n%s", round, diff)
		}
	}
	if n := len(watcher.group.log); n != maxLog {
		t.Errorf("the log has grown to %d, want its limit of %d", n, maxLog)
	}
}

// TestStoredWhileScanning: the initial events of a slow client are not the end of
// what it hears of pods that were renewed meanwhile, and are complete when they end.
func TestStoredWhileScanning(t *testing.T) {
	const pods = 3 * scanChunk
	w := newWorld(t)
	for i := range pods {
		w.pod("a", fmt.Sprintf("p%03d", i), "")
		w.store("a", fmt.Sprintf("p%03d", i), 1)
	}
	for name, watcher := range map[string]*Watcher{
		"a plain watch":                  w.watch(Request{}, 0),
		"one that tells when it has all": w.watch(Request{Bookmarks: true, InitialEventsEnd: true}, 0),
	} {
		t.Run(name, func(t *testing.T) {
			value := w.sample
			var want, got []string
			for i := range pods {
				w.store("a", fmt.Sprintf("p%03d", i), value)
			}
			for i := range scanChunk / 2 {
				got = append(got, take(t, <-watcher.ResultChan()))
				want = append(want, fmt.Sprintf("a/p%03d %d", i, value))
			}
			newer := value + 1
			w.store("a", "p000", newer) // swept before
			for i := 2 * scanChunk; i < pods; i++ {
				w.store("a", fmt.Sprintf("p%03d", i), newer) // not swept yet
			}
			got = append(got, read(t, watcher)...)
			for i := scanChunk / 2; i < pods; i++ {
				if i < 2*scanChunk {
					want = append(want, fmt.Sprintf("a/p%03d %d", i, value))
				} else {
					want = append(want, fmt.Sprintf("a/p%03d %d", i, newer))
				}
			}
			if watcher.request.InitialEventsEnd {
				want = append(want, "BOOKMARK end")
			}
			want = append(want, fmt.Sprintf("a/p000 %d", newer))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestGone is about objects that are no longer there, or no longer match, when
// their event comes to be written.
func TestGone(t *testing.T) {
	tests := map[string]func(*world){
		"deleted":           func(w *world) { w.collection.DeleteMeta(samplestore.Key{Namespace: "a", Name: "web"}) },
		"too old":           func(w *world) { w.clock.Step(2 * maxAge) },
		"no longer a match": func(w *world) { w.pod("a", "web", "app=other") },
	}
	for name, leave := range tests {
		for _, when := range []string{"initial", "later"} {
			t.Run(name+" "+when, func(t *testing.T) {
				w := newWorld(t)
				w.pod("a", "web", "app=web")
				r := Request{Selection: selecting(t, "a", "app=web", "")}
				var watcher *Watcher
				if when == "later" {
					watcher = w.watch(r, 0)
					read(t, watcher)
				}
				w.store("a", "web", 1)
				if when == "initial" {
					watcher = w.watch(r, 0)
				}
				leave(w)
				if got := read(t, watcher); got != nil {
					t.Errorf("got %q", got)
				}
			})
		}
	}
}

// TestRelabeled: a change of labels is no data point, and the next data point
// goes by the new labels.
func TestRelabeled(t *testing.T) {
	w := newWorld(t)
	w.pod("a", "web", "app=web")
	w.store("a", "web", 1)
	watcher := w.watch(Request{Selection: selecting(t, "", "app=web", "")}, 0)
	read(t, watcher)
	for _, step := range []struct {
		labels string
		want   []string
	}{
		{"app=web,canary=yes", []string{"a/web 2"}},
		{"app=other", nil},
		{"app=web", []string{"a/web 2"}},
	} {
		w.pod("a", "web", step.labels)
		if got := read(t, watcher); got != nil {
			t.Errorf("%s: the change itself was sent: %q", step.labels, got)
		}
		w.store("a", "web", 2)
		if diff := cmp.Diff(step.want, read(t, watcher)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.labels, diff)
		}
	}
}

// TestFlushes: the channel is empty, which makes the watch handler flush, only
// after the last event of a burst.
func TestFlushes(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.pod("a", fmt.Sprint(i), "")
		w.store("a", fmt.Sprint(i), 1)
	}
	watcher := w.watch(Request{}, 0)
	var waiting []int
	for range 5 {
		take(t, <-watcher.ResultChan())
		waiting = append(waiting, len(watcher.ResultChan()))
	}
	if diff := cmp.Diff([]int{1, 1, 1, 1, 0}, waiting); diff != "" {
		t.Errorf("events in the channel after each encode (-want +got):\n%s", diff)
	}
}

// TestOnlyAdded: nothing but ADDED, whatever happens to a pod.
func TestOnlyAdded(t *testing.T) {
	w := newWorld(t)
	watcher := w.watch(Request{}, 0)
	types := map[watch.EventType]bool{}
	for _, happens := range []func(){
		func() { w.pod("a", "web", "") },
		func() { w.store("a", "web", 1) },
		func() { w.store("a", "web", 2) },
		func() { w.collection.DeleteMeta(samplestore.Key{Namespace: "a", Name: "web"}) },
	} {
		happens()
		for len(watcher.ResultChan()) > 0 {
			e := <-watcher.ResultChan()
			types[e.Type] = true
			if err := e.Object.(*Watcher).CacheEncode("text", nil, io.Discard); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(map[watch.EventType]bool{watch.Added: true}, types); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
