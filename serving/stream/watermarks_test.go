// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

func key(n int) samplestore.Key {
	return samplestore.Key{Namespace: "a", Name: fmt.Sprintf("p%05d", n)}
}

// TestWatermarks covers keys step by step.
func TestWatermarks(t *testing.T) {
	tests := map[string]struct {
		cover  func(*watermarks)
		want   map[int]uint64
		ranges int
	}{
		"nothing":               {cover: func(*watermarks) {}, want: map[int]uint64{0: 0, 9: 0}},
		"all at once":           {cover: func(c *watermarks) { c.extendToEnd(7) }, want: map[int]uint64{0: 7, 9: 7}},
		"a number for all":      {cover: func(c *watermarks) { c.extend(key(3), 7); c.extend(key(5), 7); c.extendToEnd(7) }, want: map[int]uint64{0: 7, 9: 7}},
		"a number for each":     {cover: func(c *watermarks) { c.extend(key(3), 5); c.extend(key(5), 6); c.extendToEnd(7) }, want: map[int]uint64{3: 5, 4: 6, 5: 6, 6: 7}, ranges: 2},
		"the log catches up":    {cover: func(c *watermarks) { c.extend(key(3), 5); c.extendToEnd(7); c.raise(6) }, want: map[int]uint64{3: 6, 4: 7}, ranges: 1},
		"the log has caught up": {cover: func(c *watermarks) { c.extend(key(3), 5); c.extendToEnd(7); c.raise(8) }, want: map[int]uint64{3: 8, 4: 8}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var c watermarks
			test.cover(&c)
			got := map[int]uint64{}
			for n := range test.want {
				got[n] = c.get(key(n))
			}
			if diff := cmp.Diff(test.want, got); diff != "" || len(c.ranges) != test.ranges {
				t.Errorf("%d ranges; numbers (-want +got):\n%s", len(c.ranges), diff)
			}
		})
	}
}

// TestWatermarksIsBounded and never covers more than it was told to.
func TestWatermarksIsBounded(t *testing.T) {
	var c watermarks
	for n := range 10 * maxRanges {
		c.extend(key(n), uint64(n+1))
	}
	if len(c.ranges) > maxRanges {
		t.Errorf("%d ranges", len(c.ranges))
	}
	for n := range 10 * maxRanges {
		if got := c.get(key(n)); got > uint64(n+1) || got == 0 && n > maxRanges {
			t.Fatalf("key %d is covered up to %d", n, got)
		}
	}
}

// TestEachPointOnce stores points at any moment of a watch that begins, falls
// behind and catches up, and looks at what its client relies on: what the initial
// events tell of is all that there is, no point comes twice or after a newer one, and
// the newest of each pod arrives.
func TestEachPointOnce(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		pods := 1 + random.IntN(5*scanChunk)
		w := newWorld(t)
		newest := map[string]string{}
		store := func(n, value int) {
			w.store("a", key(n).Name, value)
			newest["a/"+key(n).Name] = fmt.Sprintf("%06d", value)
		}
		for n := range pods {
			w.pod("a", key(n).Name, "")
			store(n, 100000)
		}
		watcher := w.watch(Request{Bookmarks: true, InitialEventsEnd: true}, 0)
		got, before, initial := map[string]string{}, len(newest), 0
		hear := func(text string) {
			if text == "BOOKMARK end" {
				initial = len(got)
				return
			}
			name, value, some := strings.Cut(text, " ")
			if some && value <= got[name] {
				t.Errorf("seed %d: %s: %s after %s", seed, name, value, got[name])
			}
			if some {
				got[name] = value
			}
		}
		for value := 100001; value < 101000; value++ {
			for range random.IntN(3 * minLog) {
				store(random.IntN(pods), value)
				value++
			}
			for range random.IntN(pods) {
				if len(watcher.ResultChan()) > 0 {
					hear(take(t, <-watcher.ResultChan()))
				}
			}
		}
		for _, text := range read(t, watcher) {
			hear(text)
		}
		if initial != before {
			t.Errorf("seed %d: the initial events told of %d of %d pods", seed, initial, before)
		}
		if diff := cmp.Diff(newest, got); diff != "" {
			t.Errorf("seed %d: the newest points (-want +got):\n%s", seed, diff)
		}
		if !slices.IsSortedFunc(watcher.seen.ranges, func(a, b keyRange) int { return a.through.Compare(b.through) }) {
			t.Errorf("seed %d: ranges out of order", seed)
		}
	}
}
