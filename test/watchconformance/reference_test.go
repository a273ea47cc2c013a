// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/resourcemetrics"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
	"github.com/metricsbackend/metrics-backend-operator/test/apiserver"
	"github.com/metricsbackend/metrics-backend-operator/test/authority"
)

// reference is this repository's API group on a real generic API server, whose
// nodes and pods have new data points several times a second.
type reference struct {
	server *httptest.Server
	config *rest.Config
	store  *samplestore.Store

	mu   sync.Mutex
	pods map[samplestore.Key]map[string]string
	made int

	// pauses are how long it took to answer when that was long, see keepPace.
	pauses []pause
}

// referenceInterval is how often the reference has new data points.
const referenceInterval = 100 * time.Millisecond

// referencePatience is an upper bound, which costs nothing where it is not reached:
// the race detector and other tests beside this one make all slow.
const referencePatience = 30 * time.Second

// roomy limits are met by no check but those of limits.
var roomy = stream.Limits{Connections: 10000, PerUser: 1000, OpensPerSecond: 100, OpensBurst: 1000}

func newReference(t *testing.T, limits stream.Limits) *reference {
	t.Helper()
	c := clock.RealClock{}
	r := &reference{store: samplestore.NewStore(c, time.Hour), pods: map[samplestore.Key]map[string]string{}}
	settings := stream.Settings{BookmarkInterval: time.Second, MaxAge: time.Hour, StallTimeout: time.Minute}
	random := func() float64 { return 0.5 }
	streams := resourcemetrics.NewStreams(r.store, c, random, stream.NewQuota(c, random, limits), settings)
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		r.store.Nodes.SetMeta(samplestore.Key{Name: name}, &samplestore.Meta{UID: types.UID(name), Labels: map[string]string{"name": name, "os": "linux"}})
	}
	for i, namespace := range []string{"default", "default", "default", "kube-system", "kube-system", "shop", "shop"} {
		r.setPod(samplestore.Key{Namespace: namespace, Name: fmt.Sprintf("pod-%d", i)}, map[string]string{"app": []string{"web", "db"}[i%2]})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { streams.Run(ctx) })
	began := time.Now().Truncate(time.Second)
	// What the first lists lack is new to the suite, which then expects less of what follows.
	r.publish(began)
	running.Go(func() { r.feed(ctx, began) })

	server := apiserver.New(t, resourcemetrics.Scheme, resourcemetrics.GetOpenAPIDefinitions)
	if _, err := resourcemetrics.InstallAPI(server, r.store, streams, func() error { return nil }, func(schema.GroupVersion) bool { return true }); err != nil {
		t.Fatal(err)
	}
	server.PrepareRun()
	r.server = httptest.NewUnstartedServer(stream.WithRequestMetadata(server.Handler))
	r.server.EnableHTTP2 = true
	// Handshakes with its keys are cheap, which those of httptest's own are not.
	ca, err := authority.New("reference")
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue("reference", []string{"127.0.0.1", "::1", "example.com"}) // which httptest's clients ask for
	if err != nil {
		t.Fatal(err)
	}
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{leaf.TLS}}
	// Clients that leave in the middle of a handshake are this suite's own.
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.server.StartTLS()
	r.config = &rest.Config{Host: r.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca.PEM}}
	t.Cleanup(func() {
		streams.Drain(0)
		cancel()
		r.server.CloseClientConnections()
		r.server.Close()
		running.Wait()
	})
	return r
}

func (r *reference) setPod(key samplestore.Key, labels map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[key] = labels
	r.store.Pods.SetMeta(key, &samplestore.Meta{UID: types.UID(key.Name), Labels: labels})
}

// feed stores a data point of everything again and again. Their times are a second
// apart, since clients are shown no less.
func (r *reference) feed(ctx context.Context, at time.Time) {
	ticker := time.NewTicker(referenceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		at = at.Add(time.Second)
		r.publish(at)
	}
}

// publish stores a data point of everything.
func (r *reference) publish(at time.Time) {
	sample := func(key samplestore.Key, containers ...string) samplestore.Update {
		p := &samplestore.Point{Time: samplestore.TimeOf(at) + 200, Newest: samplestore.TimeOf(at) + 700, Window: 15 * time.Second, Node: "node-1"}
		for _, container := range containers {
			p.Usages = append(p.Usages, samplestore.Usage{Name: container, CPU: uint64(at.Unix()%1000) * 1e6, Memory: uint64(at.Unix())})
		}
		return samplestore.Update{Key: key, Point: p}
	}
	var nodes, pods []samplestore.Update
	for o := range 3 {
		nodes = append(nodes, sample(samplestore.Key{Name: fmt.Sprintf("node-%d", o+1)}, ""))
	}
	r.mu.Lock()
	for key := range maps.Keys(r.pods) {
		pods = append(pods, sample(key, "app", "sidecar"))
	}
	r.mu.Unlock()
	r.store.Nodes.Publish(nodes)
	r.store.Pods.Publish(pods)
}

// Create, Relabel and Delete implement Pods.
func (r *reference) Create(_ context.Context, labels map[string]string) (namespace, name string, err error) {
	r.mu.Lock()
	r.made++
	key := samplestore.Key{Namespace: "default", Name: fmt.Sprintf("made-%d", r.made)}
	r.mu.Unlock()
	r.setPod(key, labels)
	return key.Namespace, key.Name, nil
}

func (r *reference) Relabel(_ context.Context, namespace, name string, labels map[string]string) error {
	r.setPod(samplestore.Key{Namespace: namespace, Name: name}, labels)
	return nil
}

func (r *reference) Delete(_ context.Context, namespace, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := samplestore.Key{Namespace: namespace, Name: name}
	delete(r.pods, key)
	r.store.Pods.DeleteMeta(key)
	return nil
}
