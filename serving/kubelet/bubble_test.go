// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// bubble is a source and its nodes in a bubble of testing/synctest. One server, which
// is connected through pipes, stands for all nodes.
type bubble struct {
	source *Source
	conns  chan net.Conn
	close  sync.Once
	cancel context.CancelFunc
	ended  chan struct{}

	mu sync.Mutex
	// requests holds when each node was scraped, by name.
	requests map[string][]time.Time
	// busy counts running requests, most is its maximum.
	busy, most int
}

// Addr, Accept and Close make it a net.Listener.
func (f *bubble) Addr() net.Addr { return &net.TCPAddr{} }

func (f *bubble) Close() error {
	f.close.Do(func() { close(f.conns) })
	return nil
}

func (f *bubble) Accept() (net.Conn, error) {
	c, ok := <-f.conns
	if !ok {
		return nil, io.EOF
	}
	return c, nil
}

func (f *bubble) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case f.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newBubble runs a source in a bubble. The handler gets the node's name.
func newBubble(t *testing.T, cfg Settings, certificate tls.Certificate, handle func(node string, w http.ResponseWriter, r *http.Request)) *bubble {
	t.Helper()
	f := &bubble{conns: make(chan net.Conn), ended: make(chan struct{}), requests: map[string][]time.Time{}}
	cfg.TLS = v1alpha1.KubeletTLSInsecureSkipTLSVerify
	var err error
	f.source, err = NewSource(Options{
		Store: samplestore.NewStore(clock.RealClock{}, 90*time.Second), Clock: clock.RealClock{},
		RestConfig: &rest.Config{}, Dial: f.dial,
	}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			name := strings.TrimPrefix(r.URL.Path, "/")
			f.mu.Lock()
			f.requests[name] = append(f.requests[name], time.Now())
			f.busy++
			f.most = max(f.most, f.busy)
			f.mu.Unlock()
			defer func() { f.mu.Lock(); f.busy--; f.mu.Unlock() }()
			handle(name, w, r)
		}),
	}
	go func() {
		_ = server.Serve(tls.NewListener(f, &tls.Config{Certificates: []tls.Certificate{certificate}}))
	}()
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig())))
	go func() { f.source.Run(ctx); close(f.ended) }()
	t.Cleanup(func() {
		f.stop()
		if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return f
}

// stop ends Run and waits for it.
func (f *bubble) stop() {
	f.cancel()
	<-f.ended
}

func (f *bubble) name(i int) string { return fmt.Sprintf("n%03d", i) }

// add adds nodes. Their names are in the path of the request.
func (f *bubble) add(n int) {
	for i := range n {
		f.source.SetNode(f.node(i))
	}
}

func (f *bubble) node(i int) *Node {
	n := testNode(f.name(i), "192.0.2.1")
	n.Path = "/" + n.Name
	n.Labels = map[string]string{"name": n.Name}
	return n
}

// times returns when a node was scraped, from since on.
func (f *bubble) times(name string, since time.Time) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests[name]), func(t time.Time) bool { return t.Before(since) })
}

// busiest returns the maximum number of requests in a second, from since on.
func (f *bubble) busiest(since time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	seconds := map[int64]int{}
	for _, times := range f.requests {
		for _, t := range times {
			if !t.Before(since) {
				seconds[t.Unix()]++
			}
		}
	}
	most := 0
	for _, n := range seconds {
		most = max(most, n)
	}
	return most
}

// inBubble runs a test in a bubble, with a certificate issued outside of it.
func inBubble(t *testing.T, test func(t *testing.T, certificate tls.Certificate)) {
	certificate := newAuthority(t).issue(nil, "n1")
	synctest.Test(t, func(t *testing.T) { test(t, certificate) })
}

// unstamped answers without timestamps, so that no refresh can be tracked.
func unstamped(node string, w http.ResponseWriter, r *http.Request) {
	withoutMemory(node, w, r)
	_, _ = io.WriteString(w, "container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p\"} 1\n")
}

// withoutMemory answers with a pod that never has a point.
func withoutMemory(_ string, w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintf(w, "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} %d\n", time.Now().Unix())
}

// gaugeInFlight returns the number of running scrapes.
func (s *Source) gaugeInFlight() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}
