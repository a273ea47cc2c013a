//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// resuming watches through kube-apiserver again and again until its context ends, and records failures.
type resuming struct {
	client *http.Client
	url    string
	// last is the type with which each watch has to end.
	last string

	mu       sync.Mutex
	opened   []time.Time
	refusals int
	failures []string
}

func (r *resuming) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (r *resuming) run(ctx context.Context) {
	for ctx.Err() == nil {
		h, answer, err := observe(ctx, r.client, r.url)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.fail("open: %v", err)
			return
		case h == nil:
			if wait := r.refused(answer); !sleep(ctx, wait) {
				return
			}
			continue
		}
		r.mu.Lock()
		r.opened = append(r.opened, time.Now())
		r.mu.Unlock()
		<-h.ended
		if ctx.Err() != nil {
			return
		}
		if all := h.all(); h.err != nil || len(all) == 0 || all[len(all)-1] != r.last {
			r.fail("a watch ended with %v after %v, want a clean end after %s", h.err, all, r.last)
		}
	}
}

// refused returns the Retry-After of a process that is shutting down.
func (r *resuming) refused(answer *http.Response) time.Duration {
	defer answer.Body.Close()
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.StatusCode != http.StatusTooManyRequests || err != nil {
		r.fail("answered %s with Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
		return time.Second
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusals++
	return time.Duration(seconds) * time.Second
}

// sleep returns false when the context ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// TestShutdownMovesWatches terminates one of two processes under watches through kube-apiserver: each watch ends cleanly,
// with a last event, and continues at the other process before the first one stops listening.
func TestShutdownMovesWatches(t *testing.T) {
	inTurn(t)
	const each = 20
	flags := []string{"--shutdown-delay-duration=10s", "--shutdown-send-retry-after=true"}
	first, kubelet := startAlone(t, "moving", flags...)
	second := startOn(t, "moving", flags...)
	b := startBalancer(t)
	b.add(first)
	first.waitReady(t)
	second.waitReady(t)
	cluster.registerBoth(t, "moving", b.port)
	// There is no event but the last one then.
	kubelet.freeze()
	token := cluster.token(t, "reader")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all []*resuming
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for i := range each {
		for query, last := range map[string]string{watchListQuery: "ERROR 504", bookmarksQuery: "BOOKMARK", plainQuery: "ADDED"} {
			client, url := throughKubeAPIServer(t, rest.CopyConfig(cluster.config))
			version := []string{"v1", "v1beta1"}[i%2]
			r := &resuming{client: client, url: url + "/apis/metrics.k8s.io/" + version + "/nodes" + query, last: last}
			all = append(all, r)
			running.Go(func() { r.run(ctx) })
		}
	}
	watches := float64(3 * each)
	first.wantWatches(t, token, watches, 20*time.Second)
	b.add(second)
	b.waitTakes(t, second)

	began := time.Now()
	first.signal(t, syscall.SIGTERM)
	first.waitEnded(t)
	gone := time.Now()
	second.wantWatches(t, token, watches, 20*time.Second)
	cancel()
	running.Wait()

	refusals := 0
	var moved time.Duration
	for _, r := range all {
		refusals += r.refusals
		if r.refusals > 2 {
			t.Errorf("a client was refused %d times with a Retry-After, want at most 2", r.refusals)
		}
		if len(r.opened) != 2 {
			t.Errorf("a client opened %d watches, want one at each process", len(r.opened))
			continue
		}
		moved = max(moved, r.opened[1].Sub(began))
		if !r.opened[1].Before(gone) {
			t.Errorf("a client went on %s after the signal, and the process was gone after %s", r.opened[1].Sub(began), gone.Sub(began))
		}
		for _, failure := range r.failures[:min(3, len(r.failures))] {
			t.Error(failure)
		}
	}
	// Requests before kube-apiserver's connection has moved get a 429.
	if most := int(watches) / 2; refusals > most {
		t.Errorf("%d watches were refused on the way, want at most %d", refusals, most)
	}
	t.Logf("%g watches moved within %s, the process was gone after %s; %d were refused on the way",
		watches, moved.Round(time.Millisecond), gone.Sub(began).Round(time.Millisecond), refusals)
	if slices.ContainsFunc(all, func(r *resuming) bool { return len(r.failures) > 0 }) {
		t.Log(first.log.String()[max(0, len(first.log.String())-4000):])
	}
}
