//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// balancer forwards each new connection to a ready process, as a Service does. Open connections stay where they are.
type balancer struct {
	port int32

	mu       sync.Mutex
	backends map[*process]bool
	// open counts the open connections of each process.
	open map[*process]int
	turn int
}

func startBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	b := &balancer{port: int32(listener.Addr().(*net.TCPAddr).Port), backends: map[*process]bool{}, open: map[*process]int{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { b.accept(ctx, listener) })
	running.Go(func() { wait.NonSlidingUntilWithContext(ctx, b.probe, 200*time.Millisecond) })
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	})
	return b
}

// add adds a process, which gets connections once it is ready.
func (b *balancer) add(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends[p] = false
}

// waitTakes waits until a process that was added gets connections.
func (b *balancer) waitTakes(t *testing.T, p *process) {
	t.Helper()
	outcome.Eventually(t, 20*time.Second, "the balancer gives the process connections", func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.backends[p] {
			return errors.New("not yet")
		}
		return nil
	})
}

// probe updates which processes are ready.
func (b *balancer) probe(ctx context.Context) {
	b.mu.Lock()
	all := slices.Collect(maps.Keys(b.backends))
	b.mu.Unlock()
	for _, p := range all {
		ready := p.ready(ctx) == nil
		b.mu.Lock()
		b.backends[p] = ready
		b.mu.Unlock()
	}
}

// next picks a ready process in turn.
func (b *balancer) next() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []*process
	for p, ok := range b.backends {
		if ok {
			ready = append(ready, p)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	slices.SortFunc(ready, func(a, b *process) int { return int(a.port - b.port) })
	b.turn++
	p := ready[b.turn%len(ready)]
	b.open[p]++
	return p
}

// leave notes the end of a connection to a process that next returned.
func (b *balancer) leave(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[p]--
}

// connections returns how many are open to a process.
func (b *balancer) connections(p *process) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[p]
}

func (b *balancer) accept(ctx context.Context, listener net.Listener) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		connections.Go(func() { b.forward(ctx, client) })
	}
}

// forward copies in both directions until either end closes.
func (b *balancer) forward(ctx context.Context, client net.Conn) {
	defer client.Close()
	p := b.next()
	if p == nil {
		return
	}
	defer b.leave(p)
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.port))))
	if err != nil {
		return
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{server, client}, {client, server}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
}
