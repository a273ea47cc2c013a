// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// followerRetry is how often a follower that polls looks whether there is a watch
// by now. Consumers take minutes; the test is to cost none.
const followerRetry = 10 * time.Second

// follower is a consumer that watches where it can and polls where it cannot, whose
// modes and whose snapshot are noted all the time.
type follower struct {
	nodes *client.Watcher[metricsv1.NodeMetrics]
	done  chan struct{}

	mu     sync.Mutex
	modes  []client.Mode
	synced bool
	oldest time.Duration
	faults []string
}

// startFollower needs a metrics API that answers.
func startFollower(t *testing.T) *follower {
	t.Helper()
	nodes, err := client.Nodes(suite.config, client.Options{PollInterval: 5 * time.Second, RetryWatch: followerRetry})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{nodes: nodes, done: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = nodes.Run(ctx) }()
	go f.note(ctx)
	t.Cleanup(func() {
		cancel()
		<-f.done
	})
	synced, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := nodes.WaitForSync(synced); err != nil {
		outcome.Deadlinef(t, "%v", err)
	}
	return f
}

// note looks at what the consumer has, five times a second.
func (f *follower) note(ctx context.Context) {
	defer close(f.done)
	wait.UntilWithContext(ctx, func(context.Context) { f.look() }, 200*time.Millisecond)
}

// look notes what the consumer has at the moment.
func (f *follower) look() {
	status, snapshot := f.nodes.Status(), f.nodes.Snapshot()
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if mode := status.Mode; mode != client.Starting && (len(f.modes) == 0 || f.modes[len(f.modes)-1] != mode) {
		f.modes = append(f.modes, mode)
	}
	f.synced = f.synced || status.Synced
	if f.synced && len(snapshot) == 0 {
		f.faults = append(f.faults, fmt.Sprintf("%s: the snapshot is empty, %+v", now.Format(time.TimeOnly), status))
	}
	for _, node := range snapshot {
		f.oldest = max(f.oldest, now.Sub(node.Timestamp.Time))
	}
}

// wait until the consumer comes by its metrics so. In which version is its own
// affair: while v1beta1 points to our pods and v1 is not registered yet, it may watch
// v1beta1, and has no reason to leave off.
func (f *follower) wait(t *testing.T, mode client.Mode) {
	t.Helper()
	began := time.Now()
	outcome.Eventually(t, 2*time.Minute, "the consumer's mode is "+string(mode), func(context.Context) error {
		if s := f.nodes.Status(); s.Mode != mode {
			return fmt.Errorf("it is %s of %q, last error: %v", s.Mode, s.Version, s.Err)
		}
		return nil
	})
	t.Logf("the consumer's mode is %s of %s after %s more", mode, f.nodes.Status().Version, time.Since(began).Round(100*time.Millisecond))
}

// finish fails the test unless the modes came in this order, among others, and the
// consumer had metrics all the time that were never older than it may show.
func (f *follower) finish(t *testing.T, want ...client.Mode) {
	t.Helper()
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("the consumer's modes: %q; the oldest sample that it showed was %s old", f.modes, f.oldest.Round(100*time.Millisecond))
	rest := f.modes
	for _, mode := range want {
		i := slices.Index(rest, mode)
		if i < 0 {
			t.Errorf("the consumer's modes are %q, want among them, in order, %q", f.modes, want)
			break
		}
		rest = rest[i+1:]
	}
	// client.Options.MaxAge, by default, counts from when a sample came, which then was
	// as old as the kubelet's period and the scrape interval make it.
	if f.oldest > (90+15+15)*time.Second {
		outcome.Unsafe(t, "the consumer showed a sample that was %s old", f.oldest)
	}
	if n := len(f.faults); n > 0 {
		outcome.Unsafe(t, "%d times the consumer had nothing, first %s", n, f.faults[0])
	}
}
