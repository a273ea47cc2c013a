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
	environment *environment

	mu sync.Mutex
	// recording is true during a measurement, which began last.
	recording bool
	began     time.Time
	// events are received data points, points those that no client had before, and lists the
	// responses to polls.
	events, points, lists int
	// delivery is the time from a kubelet's response with a data point to the client.
	delivery figures.Durations
	// first and synced are the times from a watch's request to its first event, and to the
	// end of the initial ones.
	first, synced figures.Durations
	// ages of the clients' data points.
	ages *figures.Ages
	// clients have their newest data point of each pod.
	clients []map[string]received
	// refused counts responses other than 200, by status, and bodies has the first of each; failed is another error.
	refused map[int]int
	bodies  map[int]string
	// refusable means that a 429 is a result, not a failure of the load.
	refusable bool
	failed    []error
	// key is a reused buffer.
	key []byte
}

// received is the newest data point that a client has of a pod.
type received struct{ sample, since time.Time }

func newTally(e *environment) *tally {
	return &tally{environment: e, refused: map[int]int{}, bodies: map[int]string{}, ages: &figures.Ages{}}
}

// take counts a data point that a client received. The lock must be held.
func (t *tally) take(client map[string]received, o object, at time.Time) {
	t.events++
	t.key = append(append(append(t.key[:0], o.namespace...), '/'), o.name...)
	if client != nil {
		before, known := client[string(t.key)]
		if known && before.sample.Equal(o.sample) {
			return
		}
		client[string(t.key)] = received{sample: o.sample, since: at}
		if !known {
			return
		}
		if t.recording {
			t.ages.Add(before.since.Sub(before.sample), at.Sub(before.sample))
		}
	}
	p := t.environment.pods[string(t.key)]
	if p == nil || !t.recording {
		return
	}
	t.delivery.Add(at.Sub(time.Unix(0, p.answered.Load())))
	if sample := o.sample.UnixMilli(); p.newest.Swap(sample) < sample {
		t.points++
	}
}

// record begins or ends a measurement, and cuts the ages of current data points at that
// time.
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
		t.began = now
		t.events, t.points, t.lists = 0, 0, 0
	}
}

// err returns the first failure, if any.
func (t *tally) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for status, n := range t.refused {
		if status == http.StatusTooManyRequests && t.refusable {
			continue
		}
		errs = append(errs, fmt.Errorf("%d requests were answered with status %d, the first with %q", n, status, t.bodies[status]))
	}
	if n := len(t.failed); n > 0 {
		errs = append(errs, fmt.Errorf("%d requests broke, the first: %w", n, t.failed[0]))
	}
	return errors.Join(errs...)
}
