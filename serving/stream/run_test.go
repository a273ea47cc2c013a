// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// TestRun keeps the time by a clock that goes by itself, and ends with its context.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.RealClock{}
		table := samplestore.NewStore(c, maxAge).Pods
		hub := NewHub(collectionSource{table}, c, func() float64 { return 1 }, Settings{BookmarkInterval: 10 * time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		go func() { hub.Run(ctx); close(returned) }()

		begin := time.Now()
		w, err := hub.Watch(ctx, Request{Metrics: newMetrics(t), Bookmarks: true, NewBookmark: bookmark})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if first := <-w.ResultChan(); first.Type != watch.Added || take(t, first) != "" {
			t.Errorf("an empty table begins with %v", first)
		}
		e := <-w.ResultChan()
		if after := time.Since(begin); e.Type != watch.Bookmark || after < 10*time.Second || after > 10*time.Second+tick {
			t.Errorf("%s after %v, want a bookmark after 10 s", e.Type, after)
		}
		cancel()
		<-returned
	})
}

// TestRunSleepsWithoutWatches: the time that passed meanwhile does not count as that of a client
// that reads nothing, and no gauge keeps what the last watch had.
func TestRunSleepsWithoutWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stall, m := clock.RealClock{}, 30*time.Second, newMetrics(t)
		hub := NewHub(collectionSource{samplestore.NewStore(c, maxAge).Pods}, c, func() float64 { return 1 }, Settings{StallTimeout: stall})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go hub.Run(ctx)
		for range 2 {
			time.Sleep(time.Hour)
			w, err := hub.Watch(ctx, Request{Metrics: m})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(stall - tick)
			if w.stopped.Load() {
				t.Fatal("a watch ended before its client had stalled")
			}
			if series(t, m.api)["watch_memory_bytes"] == 0 {
				t.Error("no gauge of an open watch")
			}
			// A watch is checked each checkInterval.
			time.Sleep(checkInterval + tick)
			if !w.stopped.Load() {
				t.Fatal("a client that reads nothing keeps its watch")
			}
		}
		w, err := hub.Watch(ctx, Request{Metrics: m})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(gaugeInterval + gaugeInterval/2) // the gauges are not due when it ends
		w.Stop()
		time.Sleep(tick)
		if got := series(t, m.api)["watch_memory_bytes"]; got != 0 {
			t.Errorf("%v bytes of watches, of which none is open", got)
		}
	})
}
