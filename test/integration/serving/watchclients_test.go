//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// watchingClients are clients of the Go package, each with two pods.
type watchingClients []*client.Watcher[metricsv1.PodMetrics]

// startClients runs them on a number of HTTP/2 connections, which end with them.
func startClients(t *testing.T, config *rest.Config, node string, count, connections int) (clients watchingClients, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	host := config.Host
	if !strings.Contains(host, "://") {
		host = "https://" + host
	}
	configs, transports := make([]*rest.Config, connections), make([]*http.Transport, connections)
	for i := range configs {
		trust, err := rest.TLSConfigFor(config)
		if err != nil {
			t.Fatalf("read the TLS configuration: %v", err)
		}
		// Of one configuration, client-go would make one connection.
		transport := &http.Transport{TLSClientConfig: trust, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP2(true)
		transports[i] = transport
		configs[i] = &rest.Config{Host: host, BearerToken: config.BearerToken, QPS: -1, Transport: transport}
	}
	for i := range count {
		w, err := client.Pods(configs[i%connections], workloads, client.Options{LabelSelector: "pair=" + pairOf(node, i%(crowd/2))})
		if err != nil {
			t.Fatalf("make a client: %v", err)
		}
		clients = append(clients, w)
		running.Go(func() { _ = w.Run(ctx) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		for _, transport := range transports {
			transport.CloseIdleConnections()
		}
	})
	t.Cleanup(stop)
	return clients, stop
}

// wantNewer waits until each watches, and has samples of both its pods that were
// taken after a time.
func (clients watchingClients) wantNewer(t *testing.T, than time.Time, within time.Duration) {
	t.Helper()
	outcome.Eventually(t, within, fmt.Sprintf("each of %d clients watches and receives data points", len(clients)), func(context.Context) error {
		late, example := 0, error(nil)
		for i, w := range clients {
			if err := newer(w, than); err != nil {
				late, example = late+1, fmt.Errorf("client %d: %w", i, err)
			}
		}
		if late > 0 {
			return fmt.Errorf("%d do not, such as %w", late, example)
		}
		return nil
	})
}

func newer(w *client.Watcher[metricsv1.PodMetrics], than time.Time) error {
	status := w.Status()
	if status.Mode != client.Watching {
		return fmt.Errorf("it is %s: %w", status.Mode, status.Err)
	}
	pods := w.Snapshot()
	if len(pods) != 2 {
		return fmt.Errorf("it has %d pods (%w)", len(pods), status.Err)
	}
	for _, pod := range pods {
		sample, err := strconv.ParseInt(pod.ResourceVersion, 10, 64)
		if err != nil {
			return fmt.Errorf("resourceVersion of %s: %w", pod.Name, err)
		}
		if age := than.Sub(time.UnixMilli(sample)); age >= 0 {
			return fmt.Errorf("its sample of %s is %s too old (%w)", pod.Name, age, status.Err)
		}
	}
	return nil
}

// TestServingKilledUnderWatches kills one of two processes with 1,000 watches between them: all continue at the other,
// which keeps serving its own meanwhile.
func TestServingKilledUnderWatches(t *testing.T) {
	inTurn(t)
	const count, connections = 1000, 10
	startCrowd(t, "mourned")
	// No limit that a thousand watches of one user meet.
	settings := crowdBackend(t, "mourned", "maxWatchesPerUser: 5000")
	first, second := cluster.startServing(t, "doubled", settings), cluster.startServing(t, "doubled", settings)
	b := startBalancer(t)
	b.add(first)
	b.add(second)
	first.waitReady(t)
	second.waitReady(t)
	b.waitTakes(t, first)
	b.waitTakes(t, second)
	token, profiler := cluster.token(t, "reader"), cluster.token(t, "profiler")

	direct, err := second.open(t.Context(), second.watchClient(t, "HTTP/2", nil), crowdPath, token)
	if err != nil {
		t.Fatalf("open a watch: %v", err)
	}
	defer direct.Body.Close()
	undisturbed := follow(direct)
	undisturbed.next(t, crowdPause)
	before, err := second.resources(t.Context(), profiler)
	if err != nil {
		t.Fatal(err)
	}

	config := &rest.Config{
		Host: "https://127.0.0.1:" + strconv.Itoa(int(b.port)), BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: cluster.servingCA.PEM, ServerName: "doubled." + servingNamespace + ".svc"},
	}
	clients, stop := startClients(t, config, "mourned", count, connections)
	clients.wantNewer(t, time.Now(), time.Minute)
	for i, p := range []*process{first, second} {
		n, err := p.sample(t.Context(), token, "metrics_api_watch_connections_open", nil)
		if err != nil {
			t.Fatal(err)
		}
		// The balancer leaves out a process that a busy machine keeps from saying that it is ready: one connection is enough.
		if n < count/connections {
			outcome.Deadlinef(t, "process %d has %g watches: they are not spread", i, n)
		}
	}

	goOn := undisturbed.keepsComing(t, crowdPause)
	first.kill(t)
	killed := time.Now()
	clients.wantNewer(t, killed, time.Minute)
	t.Logf("all clients have new data points %s after the kill", time.Since(killed).Round(100*time.Millisecond))
	second.wantWatches(t, token, count+1, 10*time.Second)
	goOn()
	stop()
	second.returnsTo(t, profiler, before, 30*time.Second)
}

// TestKubeAPIServerRestartUnderWatches stops kube-apiserver under watches through it: the process closes them all, and
// the clients reconnect.
func TestKubeAPIServerRestartUnderWatches(t *testing.T) {
	const count, connections = 60, 4
	startCrowd(t, "orphaned")
	p := cluster.startServing(t, "outliving", crowdBackend(t, "orphaned", ""))
	p.waitReady(t)
	cluster.register(t, "outliving", p.port, "v1", "v1beta1")
	outcome.Eventually(t, time.Minute, "metrics through kube-apiserver", func(context.Context) error {
		return wantCount(t.Context(), "/apis/metrics.k8s.io/v1/nodes", 1)
	})
	token, profiler := cluster.token(t, "reader"), cluster.token(t, "profiler")
	before, err := p.resources(t.Context(), profiler)
	if err != nil {
		t.Fatal(err)
	}
	clients, stop := startClients(t, cluster.config, "orphaned", count, connections)
	clients.wantNewer(t, time.Now(), time.Minute)
	p.wantWatches(t, token, count, 10*time.Second)

	startAPIServer := cluster.stopAPIServer(t)
	// What kube-apiserver said of the token is known for 10 s only, and part of them are over.
	p.forAdministrator(t).wantWatches(t, "", 0, 30*time.Second)
	startAPIServer()
	clients.wantNewer(t, time.Now(), 2*time.Minute)
	p.wantWatches(t, token, count, 10*time.Second)
	stop()
	p.returnsTo(t, profiler, before, 30*time.Second)
}
