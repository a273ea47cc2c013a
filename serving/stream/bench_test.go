// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

const (
	benchNodes    = 1000
	benchPods     = 30 // of each node
	benchApps     = benchNodes * benchPods / 20
	benchWatchers = 10000
	benchTeams    = 100 // of which each has a hundredth of the pods
)

// fleet is a hub over 30,000 pods in 300 namespaces, 20 to an app, each namespace
// with 5 apps.
type fleet struct {
	collection *samplestore.Collection
	hub        *Hub
	metrics    *Metrics
	updates    [][]samplestore.Update // of each node
	round      int
}

func newFleet() *fleet {
	f := &fleet{metrics: NewMetrics(API{Group: "fleet"}), collection: samplestore.NewStore(clock.RealClock{}, time.Hour).Pods}
	f.hub = NewHub(collectionSource{f.collection}, clock.RealClock{}, func() float64 { return 1 }, usual)
	var items []Item
	f.collection.Observe(func(objects []*samplestore.Object) {
		items = items[:0]
		for _, o := range objects {
			items = append(items, (*textItem)(o))
		}
		f.hub.Publish(items)
	})
	f.updates = make([][]samplestore.Update, benchNodes)
	for n := range f.updates {
		f.updates[n] = make([]samplestore.Update, benchPods)
		for i := range f.updates[n] {
			app := (n*benchPods + i) % benchApps
			key := samplestore.Key{Namespace: namespace(app), Name: fmt.Sprintf("app-%04d-%04d-%02d", app, n, i)}
			f.updates[n][i].Key = key
			f.collection.SetMeta(key, &samplestore.Meta{UID: "u", Labels: map[string]string{
				"app": fmt.Sprintf("app-%04d", app), "pod-template-hash": "5d9f8c7b6d", "tier": "web", "app.kubernetes.io/part-of": "shop",
				"team": fmt.Sprintf("team-%02d", app%benchTeams),
			}})
		}
		f.scrape(n)
	}
	return f
}

func namespace(app int) string { return fmt.Sprintf("namespace-%03d", app/5) }

// scrape publishes new points of all pods of a node.
func (f *fleet) scrape(node int) {
	f.round++
	now := samplestore.TimeOf(time.Now())
	points := make([]samplestore.Point, benchPods)
	for i := range f.updates[node] {
		points[i] = samplestore.Point{
			Time: now, Newest: samplestore.TimeOf(t0) + samplestore.Time(f.round), Node: "n",
			Usages: []samplestore.Usage{{Name: "a", Memory: uint64(f.round)}},
		}
		f.updates[node][i].Point = &points[i]
	}
	f.collection.Publish(f.updates[node])
}

// watchers of which each selects the 20 pods of an app, by label.
func (f *fleet) watchers(b *testing.B) []*Watcher {
	b.Helper()
	m, ctx := newMetrics(b), quiet(b)
	watchers := make([]*Watcher, benchWatchers)
	for n := range watchers {
		app := n % benchApps
		w, err := f.hub.Watch(ctx, Request{
			Selection: selecting(b, namespace(app), fmt.Sprintf("app=app-%04d", app), ""), Metrics: m,
		})
		if err != nil {
			b.Fatal(err)
		}
		watchers[n] = w
	}
	return watchers
}

func (w *Watcher) drain(b *testing.B) {
	for len(w.events) > 0 {
		e := <-w.events
		if err := e.Object.(*Watcher).CacheEncode("text", nil, io.Discard); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkDelivery brings the 30 points of one scrape to those of 10,000
// watchers that want them: 200 deliveries.
func BenchmarkDelivery(b *testing.B) {
	f := newFleet()
	watchers := f.watchers(b)
	for _, w := range watchers {
		w.drain(b)
	}
	before := delivered(watchers)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		node := i % benchNodes
		f.scrape(node)
		for j := range benchPods {
			for n := (node*benchPods + j) % benchApps; n < benchWatchers; n += benchApps {
				watchers[n].drain(b)
			}
		}
	}
	n := float64(delivered(watchers) - before)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/delivery")
	b.ReportMetric(n/float64(b.N), "deliveries/op")
}

func delivered(watchers []*Watcher) (n uint64) {
	for _, w := range watchers {
		n += w.delivered.Load()
	}
	return n
}

// BenchmarkPublish is what a scrape costs its source, none of whose 30 points
// anybody wants, for 10,000 watchers of others.
func BenchmarkPublishUnwanted(b *testing.B) {
	f := newFleet()
	for _, w := range f.watchers(b) {
		w.drain(b)
	}
	items := make([]Item, benchPods)
	for i := range items {
		items[i] = &textItem{Key: samplestore.Key{Namespace: "other", Name: fmt.Sprint(i)}, Meta: f.collection.Get(f.updates[0][i].Key).Meta}
	}
	b.ReportAllocs()
	for b.Loop() {
		f.hub.Publish(items)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchPods), "ns/point")
}

// BenchmarkConnect opens 10,000 watches and reads the initial events of each.
func BenchmarkConnect(b *testing.B) {
	f := newFleet()
	var bytes float64
	for b.Loop() {
		before := heap.InUse()
		watchers := f.watchers(b)
		for _, w := range watchers {
			w.drain(b)
		}
		bytes = heap.InUse() - before
		for _, w := range watchers {
			w.Stop()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchWatchers), "ns/watch")
	b.ReportMetric(bytes/benchWatchers, "heap-B/watch")
}

// BenchmarkConnectClusterWide opens a watch of a hundredth of 30,000 pods in all
// namespaces and reads its initial events: as the first of its selection, and
// while others watch the same.
func BenchmarkConnectClusterWide(b *testing.B) {
	connect := func(b *testing.B, f *fleet, team int) *Watcher {
		w, err := f.hub.Watch(quiet(b), Request{Metrics: f.metrics, Selection: selecting(b, "", fmt.Sprintf("team=team-%02d", team%benchTeams), "")})
		if err != nil {
			b.Fatal(err)
		}
		w.drain(b)
		return w
	}
	b.Run("first", func(b *testing.B) {
		f := newFleet()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			connect(b, f, i).Stop()
		}
	})
	b.Run("again", func(b *testing.B) {
		f := newFleet()
		for team := range benchTeams {
			defer connect(b, f, team).Stop()
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			connect(b, f, i).Stop()
		}
	})
}

// BenchmarkLatency paces 2,000 points a second for a second, at 10,000 watchers
// with a goroutine each, and reports the time from the store to the client.
func BenchmarkLatency(b *testing.B) {
	f := newFleet()
	watchers := f.watchers(b)
	for _, w := range watchers {
		w.drain(b)
	}
	var began atomic.Int64
	var mu sync.Mutex
	var took []time.Duration
	var running sync.WaitGroup
	for _, w := range watchers {
		running.Go(func() {
			var own []time.Duration
			for e := range w.ResultChan() {
				if err := e.Object.(*Watcher).CacheEncode("text", nil, io.Discard); err != nil {
					b.Error(err)
				}
				own = append(own, time.Duration(time.Now().UnixNano()-began.Load()))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	const pause = time.Second * benchPods / 2000
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for node := 0; b.Loop(); {
		for range int(time.Second / pause) {
			<-ticker.C
			began.Store(time.Now().UnixNano())
			f.scrape(node % benchNodes)
			node++
		}
	}
	for _, w := range watchers {
		w.Stop()
	}
	running.Wait()
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(len(took))/float64(b.N), "deliveries/s")
	}
}

// BenchmarkStalled is what 1,000 clients cost that all want all of 30,000 pods,
// read a little and then nothing, while every pod is renewed several times.
func BenchmarkStalled(b *testing.B) {
	const watchers = 1000
	f := newFleet()
	var bytes float64
	for b.Loop() {
		before := heap.InUse()
		all := make([]*Watcher, watchers)
		for i := range all {
			w, err := f.hub.Watch(quiet(b), Request{Metrics: f.metrics})
			if err != nil {
				b.Fatal(err)
			}
			for range 5 {
				if err := (<-w.events).Object.(*Watcher).CacheEncode("text", nil, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
			all[i] = w
		}
		for n := range 3 * benchNodes {
			f.scrape(n % benchNodes)
		}
		bytes = heap.InUse() - before
		for _, w := range all {
			w.Stop()
		}
	}
	b.ReportMetric(bytes/watchers, "heap-B/watch")
}

// BenchmarkPublishToCostlySelectors: what one user's selectors cost all others.
func BenchmarkPublishToCostlySelectors(b *testing.B) {
	for _, load := range []struct{ watches, terms int }{{0, 0}, {1, 1}, {100, 8}, {1000, 1}, {1, 1000}, {100, 1000}} {
		b.Run(fmt.Sprintf("%d watches of %d terms", load.watches, load.terms), func(b *testing.B) {
			w := newWorld(b)
			w.pod("a", "web", "app=web,tier=front,pod-template-hash=abc")
			for i := range load.watches {
				all := make([]string, load.terms)
				for term := range all {
					all[term] = fmt.Sprintf("label-%d!=v%d", term, i)
				}
				w.watch(Request{Selection: selecting(b, "", strings.Join(all, ","), "")}, 0)
			}
			b.ResetTimer()
			for i := range b.N {
				w.store("a", "web", i)
			}
		})
	}
}
