// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
)

// tally has the counts of the clients of one connection. They share its reader; the
// lock is for readers of the counts.
type tally struct {
	world *world

	mu sync.Mutex
	// recording says that what is counted below belongs to a measurement.
	recording bool
	// events are data points that came, points those that came to none before, and
	// lists the answers to polls.
	events, points, lists int
	// delivery is from a kubelet's answer, which brought a data point, to the client.
	delivery figures.Durations
	// first and synced are from a watch's request to its first event, and to the
	// end of the initial ones.
	first, synced figures.Durations
	// ages of what the clients hold.
	ages *figures.Ages
	// clients hold what they last heard of each pod.
	clients []map[string]holding
	// refused counts answers that were not 200, by status; failed is other trouble.
	refused map[int]int
	// refusable says that a 429 is a finding, not a failure of the load.
	refusable bool
	failed    []error
	// key is scratch.
	key []byte
}

// holding is a data point in a client's hands.
type holding struct{ sample, since time.Time }

func newTally(w *world) *tally {
	return &tally{world: w, refused: map[int]int{}, ages: &figures.Ages{}}
}

// take counts a data point that a client heard of. The lock is held.
func (t *tally) take(client map[string]holding, o object, at time.Time) {
	t.events++
	t.key = append(append(append(t.key[:0], o.namespace...), '/'), o.name...)
	if client != nil {
		before, known := client[string(t.key)]
		if known && before.sample.Equal(o.sample) {
			return
		}
		client[string(t.key)] = holding{sample: o.sample, since: at}
		if !known {
			return
		}
		if t.recording {
			t.ages.Add(before.since.Sub(before.sample), at.Sub(before.sample))
		}
	}
	p := t.world.pods[string(t.key)]
	if p == nil || !t.recording {
		return
	}
	t.delivery.Add(at.Sub(time.Unix(0, p.answered.Load())))
	if sample := o.sample.UnixMilli(); p.newest.Swap(sample) < sample {
		t.points++
	}
}

// record begins or ends a measurement: what the clients hold at that moment is
// cut there.
func (t *tally) record(on bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, client := range t.clients {
		for key, h := range client {
			if t.recording {
				t.ages.Add(h.since.Sub(h.sample), now.Sub(h.sample))
			}
			h.since = now
			client[key] = h
		}
	}
	t.recording = on
	if on {
		t.events, t.points, t.lists = 0, 0, 0
	}
}

// err tells what went wrong, if anything did.
func (t *tally) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for status, n := range t.refused {
		if status == http.StatusTooManyRequests && t.refusable {
			continue
		}
		errs = append(errs, fmt.Errorf("%d requests were answered with status %d", n, status))
	}
	if n := len(t.failed); n > 0 {
		errs = append(errs, fmt.Errorf("%d requests broke, the first: %w", n, t.failed[0]))
	}
	return errors.Join(errs...)
}
