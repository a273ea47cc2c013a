//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// dialer makes a client's connections.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// watchClient returns a client with its own connections to a process, and without a timeout.
func (p *process) watchClient(t *testing.T, protocol string, dial dialer) *http.Client {
	t.Helper()
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	trusted := p.client.Transport.(*http.Transport).TLSClientConfig
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trusted.RootCAs, ServerName: trusted.ServerName, MinVersion: tls.VersionTLS12},
		DialContext:     dial,
		Protocols:       new(http.Protocols),
		// The smallest window that there is: a client that does not read blocks soon.
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10},
	}
	switch protocol {
	case "HTTP/1.1":
		transport.Protocols.SetHTTP1(true)
	case "HTTP/2":
		transport.Protocols.SetHTTP2(true)
	default:
		t.Fatalf("unknown protocol %q", protocol)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// narrow dials connections with a small receive buffer, set before the handshake so that the server's kernel buffers
// little for them, too.
func narrow(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
		return errors.Join(err, set)
	}}
	return dialer.DialContext(ctx, network, address)
}

// open begins a watch and returns its answer, of which nothing was read.
func (p *process) open(ctx context.Context, client *http.Client, path, token string) (*http.Response, error) {
	answer, err := p.send(ctx, client, path, token)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return nil, fmt.Errorf("%s answers %s: %s", path, answer.Status, body)
	}
	return answer, nil
}

// watched is a watch that is read.
type watched struct {
	events chan string // one line each, the newest few
	ended  chan struct{}
	err    error
}

// follow reads a watch until it ends.
func follow(answer *http.Response) *watched {
	w := &watched{events: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if !strings.HasPrefix(lines.Text(), `{"type":"ADDED"`) {
				continue
			}
			select { // in place of one that nobody has taken
			case <-w.events:
			default:
			}
			w.events <- lines.Text()
		}
		w.err = lines.Err()
	}()
	return w
}

// next waits for the next data point.
func (w *watched) next(t *testing.T, within time.Duration) string {
	t.Helper()
	select {
	case e := <-w.events:
		return e
	case <-w.ended:
		t.Fatalf("the watch ended: %v", w.err)
	case <-time.After(within):
		outcome.Deadlinef(t, "no data point within %s", within)
	}
	return ""
}

// keepsComing reads a watch until stop is called, and fails the test if a pause is too long.
func (w *watched) keepsComing(t *testing.T, pause time.Duration) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-w.events:
			case <-w.ended:
				t.Errorf("a client that reads was ended after %d data points: %v", n, w.err)
				return
			case <-time.After(pause):
				t.Errorf("a client that reads received nothing for %s after %d data points", pause, n)
				return
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

// sample is the sum over a metric's series whose labels contain the given pairs.
func (p *process) sample(ctx context.Context, token, name string, labels map[string]string) (float64, error) {
	status, body, err := p.get(ctx, "/metrics", token)
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK {
		return 0, fmt.Errorf("/metrics: status %d: %s", status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("parse /metrics: %w", err)
	}
	family, ok := families[name]
	if !ok {
		return 0, nil // a series begins with its first count
	}
	sum := 0.0
series:
	for _, m := range family.Metric {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		for k, v := range labels {
			if have[k] != v {
				continue series
			}
		}
		sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return sum, nil
}

// resources are what must return to its start.
type resources struct{ watches, goroutines, files, heap float64 }

// heapProfile collects garbage first, with ?gc=1.
const heapProfile = "/debug/pprof/heap"

// resources collects garbage first, as the account profiler may, so that the heap is what is in use.
func (p *process) resources(ctx context.Context, profiler string) (r resources, err error) {
	if status, body, err := p.get(ctx, heapProfile+"?gc=1", profiler); err != nil || status != http.StatusOK {
		return r, fmt.Errorf("%s: status %d, %w: %.200s", heapProfile, status, err, body)
	}
	for name, value := range map[string]*float64{
		"metrics_api_watch_connections_open": &r.watches, "go_goroutines": &r.goroutines, "process_open_fds": &r.files,
		"go_memstats_heap_alloc_bytes": &r.heap,
	} {
		if *value, err = p.sample(ctx, profiler, name, nil); err != nil {
			return r, err
		}
	}
	return r, nil
}

// returnsTo waits until a process uses no more than before. A few connections and goroutines come and go with the kubelet
// and kube-apiserver, and caches grow; a thousand leaked watches would be 40 MB.
func (p *process) returnsTo(t *testing.T, profiler string, before resources, within time.Duration) {
	t.Helper()
	const tolerance, heapTolerance = 12, 8 << 20
	outcome.Eventually(t, within, "all resources are released", func(context.Context) error {
		now, err := p.resources(t.Context(), profiler)
		if err != nil {
			return err
		}
		if now.watches != before.watches || now.goroutines > before.goroutines+tolerance || now.files > before.files+tolerance ||
			now.heap > before.heap+heapTolerance {
			return fmt.Errorf("at the start %+v, now %+v", before, now)
		}
		t.Logf("at the start %+v, now %+v", before, now)
		return nil
	})
}

// wantWatches waits for a number of open watches, as the process says itself.
func (p *process) wantWatches(t *testing.T, token string, want float64, within time.Duration) {
	t.Helper()
	outcome.Eventually(t, within, fmt.Sprintf("%g watches are open", want), func(context.Context) error {
		got, err := p.sample(t.Context(), token, "metrics_api_watch_connections_open", nil)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%g are", got)
		}
		return nil
	})
}
