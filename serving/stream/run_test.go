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
