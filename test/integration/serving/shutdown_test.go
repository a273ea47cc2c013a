//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// load sends requests through kube-apiserver, without a pause and without a retry.
type load struct {
	stop     func()
	answered atomic.Int64
	mu       sync.Mutex
	failures []string
}

// startLoad runs clients until finish, or the end of the test.
func startLoad(t *testing.T, clients int) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	l := &load{stop: func() { cancel(); running.Wait() }}
	client, url := throughKubeAPIServer(t, cluster.config)
	for i := range clients {
		path := []string{"/apis/metrics.k8s.io/v1/nodes", "/apis/metrics.k8s.io/v1beta1/nodes"}[i%2]
		running.Go(func() {
			for ctx.Err() == nil {
				l.ask(ctx, client, url+path)
			}
		})
	}
	return l
}

// wantAnswers waits until n further requests have been answered.
func (l *load) wantAnswers(t *testing.T, n int64, within time.Duration, what string) {
	t.Helper()
	before := l.answered.Load()
	outcome.Eventually(t, within, what, func(context.Context) error {
		if got := l.answered.Load() - before; got < n {
			return fmt.Errorf("%d answers, want %d", got, n)
		}
		return nil
	})
}

// finish stops the load and fails the test if a request failed.
func (l *load) finish(t *testing.T) {
	t.Helper()
	l.stop()
	if n := len(l.failures); n > 0 {
		t.Errorf("%d of %d requests failed:\n%s", n, l.answered.Load(), strings.Join(l.failures[:min(10, n)], "\n"))
	}
	t.Logf("%d requests answered", l.answered.Load())
}

func (l *load) ask(ctx context.Context, client *http.Client, url string) {
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, url, nil)
	if err != nil {
		l.fail(err.Error())
		return
	}
	answer, err := client.Do(request)
	if err != nil {
		l.fail(err.Error())
		return
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		l.fail(fmt.Sprintf("status %d, %v: %s", answer.StatusCode, err, body))
		return
	}
	l.answered.Add(1)
}

func (l *load) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+what)
}

// TestShutdownFailsNoRequest terminates one of two processes and then the other, as a rollout does, under requests through
// kube-apiserver.
func TestShutdownFailsNoRequest(t *testing.T) {
	inTurn(t)
	// As in the operator's Deployment, but for the length.
	flags := []string{"--shutdown-delay-duration=10s", "--shutdown-send-retry-after=true"}
	first, _ := startAlone(t, "balanced", flags...)
	second := startOn(t, "balanced", flags...)
	b := startBalancer(t)
	b.add(first)
	b.add(second)
	first.waitReady(t)
	second.waitReady(t)
	server, err := cluster.client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	unused := 0
	if minor, err := strconv.Atoi(server.Minor); err == nil && minor < 37 {
		unused = 1 // kube-apiserver 1.31 and 1.34 keep one open that they do not use
	}
	cluster.registerBoth(t, "balanced", b.port)

	clients := startLoad(t, 64)
	answers := func(what string) {
		t.Helper()
		clients.wantAnswers(t, 200, 20*time.Second, what)
	}
	end := func(p *process) {
		t.Helper()
		p.signal(t, syscall.SIGTERM)
		outcome.Eventually(t, 10*time.Second, "readiness goes at once", func(context.Context) error {
			if status, _, err := p.get(t.Context(), "/readyz", ""); err == nil && status == http.StatusOK {
				return fmt.Errorf("still ready")
			}
			return nil
		})
		// Well before it stops listening: connections that are still open then fail.
		outcome.Eventually(t, 7*time.Second, "kube-apiserver's connections leave", func(context.Context) error {
			if n := b.connections(p); n > unused {
				return fmt.Errorf("%d are open", n)
			}
			return nil
		})
		p.waitEnded(t)
	}
	answers("answers with both processes")
	end(first)
	answers("answers with the second process alone")
	third := startOn(t, "balanced", flags...)
	b.add(third)
	third.waitReady(t)
	answers("answers with two processes again")
	end(second)
	answers("answers with the third process alone")
	clients.finish(t)
}
