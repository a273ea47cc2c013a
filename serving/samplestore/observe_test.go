// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"sync"
	"testing"
)

// TestObserve publishes from several sources at once: the observer hears of each
// point that is accepted, in the order of the numbers, when it is visible.
func TestObserve(t *testing.T) {
	const publishers, pods, rounds = 4, 5, 50
	store, _ := newStore()
	var last uint64
	store.Pods.Observe(func(objects []*Object) {
		for _, o := range objects {
			if o.Sequence != last+1 {
				t.Errorf("number %d after %d", o.Sequence, last)
			}
			last = o.Sequence
			if seen := store.Pods.Get(o.Key); seen == nil || seen.Sequence != o.Sequence {
				t.Errorf("%v is not visible when the observer hears of it", o.Key)
			}
		}
		if now := store.Pods.Sequence(); now != last {
			t.Errorf("the collection is at %d, its observer at %d", now, last)
		}
	})
	var running sync.WaitGroup
	for n := range publishers {
		running.Go(func() {
			updates := make([]Update, pods)
			for i := range updates {
				updates[i].Key = Key{fmt.Sprint(n), fmt.Sprint(i)}
				store.Pods.SetMeta(updates[i].Key, meta("u"))
			}
			for round := range rounds {
				for i := range updates {
					updates[i].Point = sample("n", 0, round)
				}
				store.Pods.Publish(updates)
				store.Pods.Publish(updates) // rejected
			}
		})
	}
	running.Wait()
	if want := uint64(publishers * pods * rounds); last != want {
		t.Errorf("heard of %d points, want %d", last, want)
	}
}

// TestSequenceIsThePoints: metadata does not change it.
func TestSequenceIsThePoints(t *testing.T) {
	store, _ := newStore()
	key := Key{"a", "web"}
	store.Pods.SetMeta(key, meta("u"))
	store.Pods.Publish([]Update{{key, sample("n", 0, 1)}})
	before := store.Pods.Get(key)
	store.Pods.SetMeta(key, &Meta{UID: "u", Labels: map[string]string{"app": "web"}})
	after := store.Pods.Get(key)
	if before == after || before.Sequence != 1 || after.Sequence != 1 {
		t.Errorf("numbers %d and %d, want 1 twice", before.Sequence, after.Sequence)
	}
}
