//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// load asks through kube-apiserver without a pause and without a retry.
type load struct {
	answered atomic.Int64
	mu       sync.Mutex
	failures []string
}

func startLoad(ctx context.Context, t *testing.T, clients int) (l *load, wait func()) {
	t.Helper()
	l = &load{}
	client, url := throughKubeAPIServer(t)
	var running sync.WaitGroup
	for i := range clients {
		path := []string{"/apis/metrics.k8s.io/v1/nodes", "/apis/metrics.k8s.io/v1beta1/nodes"}[i%2]
		running.Go(func() {
			for ctx.Err() == nil {
				l.ask(ctx, client, url+path)
			}
		})
	}
	return l, running.Wait
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

// TestShutdownFailsNoRequest ends one of two processes, and then the other, as a
// rollout does, while clients ask through kube-apiserver.
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
	cluster.registerBoth(t, "balanced", b.port)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	clients, wait := startLoad(ctx, t, 64)
	answers := func(what string) {
		t.Helper()
		before := clients.answered.Load()
		outcome.Eventually(t, 20*time.Second, what, func(context.Context) error {
			if n := clients.answered.Load() - before; n < 200 {
				return fmt.Errorf("%d answers", n)
			}
			return nil
		})
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
		// Well before it stops to listen: whoever is still there then fails.
		outcome.Eventually(t, 7*time.Second, "kube-apiserver's connections leave", func(context.Context) error {
			if n := b.connections(p); n > 0 {
				return fmt.Errorf("%d are open", n)
			}
			return nil
		})
		select {
		case <-p.ended:
			if p.result != nil {
				t.Errorf("the process ended with %v", p.result)
			}
		case <-time.After(30 * time.Second):
			t.Error("the process has not ended within 30s")
		}
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

	cancel()
	wait()
	if len(clients.failures) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(clients.failures), clients.answered.Load(), strings.Join(clients.failures[:min(10, len(clients.failures))], "\n"))
	}
	t.Logf("%d requests answered", clients.answered.Load())
}
