// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// source answers with a value for each pod; it counts what it is asked.
type source struct {
	mu      sync.Mutex
	asked   []string
	values  map[string]float64
	failure error
	// at is the time of the samples; nil for that of the evaluation.
	at func(time.Time) time.Time
}

func (s *source) Evaluate(_ context.Context, q query.Query, at time.Time) (*query.Result, error) {
	expression := q.Expression
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, expression)
	if s.failure != nil {
		return nil, s.failure
	}
	if s.at != nil {
		at = s.at(at)
	}
	a := &query.Result{Time: at}
	for pod, value := range s.values {
		a.Samples = append(a.Samples, query.Sample{Labels: map[string]string{"pod": pod}, Value: value, Time: at})
	}
	return a, nil
}

func (s *source) set(values map[string]float64, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.failure = values, failure
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// world is a store between a real evaluator and a real hub, in a bubble of its own time.
type world struct {
	t         testing.TB
	source    *source
	evaluator *query.Evaluator
	store     *Cache
	hub       *stream.Hub

	mu          sync.Mutex
	objects     map[string]map[string]string
	metricQuery query.MetricQuery
	readErr     error
	encoded     int
	// follow are the names for a static fallback.
	follow func() []string
}

// group is the name of the store.
const group = "custom.metrics.k8s.io"

const interval = 15 * time.Second

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, source: &source{values: map[string]float64{"a": 1, "b": 2}}, metricQuery: query.MetricQuery{
			Query:       query.Query{Source: "p", Expression: "hits", Interval: interval},
			ObjectLabel: "pod", Origin: "a rule",
		}}
		random := func() float64 { return 0.5 }
		c := clock.RealClock{}
		w.evaluator = query.NewEvaluator(c, random, func(string) (query.Source, bool) { return w.source, true }, 200)
		w.store = NewCache(group, c, w.evaluator)
		w.hub = stream.NewHub(w.store, c, random, stream.Settings{BookmarkInterval: time.Hour})
		w.store.Observe(w.hub.Publish)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, run := range []func(context.Context){w.evaluator.Run, w.store.Run, w.hub.Run} {
			running.Go(func() { run(ctx) })
		}
		test(t, w)
		cancel()
		running.Wait()
	})
}

// subscription returns that of the hits of pods.
func (w *world) subscription() Subscription {
	return Subscription{
		ID: "hits",
		Read: func() (query.MetricQuery, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.metricQuery, w.readErr
		},
		Labels: func(object string) (map[string]string, bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.objects == nil {
				return nil, true
			}
			l, ok := w.objects[object]
			return l, ok
		},
		Objects: func() []string {
			if w.follow == nil {
				return nil
			}
			return w.follow()
		},
		Event: func(p Point) runtime.Object {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.encoded++
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: p.Object + "=" + p.Quantity.String()}}
		},
	}
}

// change changes what the sub reads.
func (w *world) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// watch begins a watch that a label selector narrows. It ends with the test at the latest.
func (w *world) watch(selector string) *stream.Watcher {
	w.t.Helper()
	release, err := w.store.Subscribe(w.t.Context(), w.subscription())
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := labels.Parse(selector)
	if err != nil {
		w.t.Fatal(err)
	}
	watcher, err := w.hub.Watch(w.t.Context(), stream.Request{Metrics: stream.NewMetrics(stream.API{}), Selection: stream.Selection{Namespace: "hits", Labels: s}, Release: release})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(watcher.Stop)
	return watcher
}

// read takes all that there is to take.
func (w *world) read(from *stream.Watcher) []string {
	w.t.Helper()
	synctest.Wait()
	return drain(w.t, from)
}

// drain takes what is there.
func drain(t testing.TB, from *stream.Watcher) []string {
	t.Helper()
	var got []string
	for {
		select {
		case e, open := <-from.ResultChan():
			if !open {
				return append(got, "closed")
			}
			var b bytes.Buffer
			if err := e.Object.(*stream.Watcher).CacheEncode("text", encode, &b); err != nil {
				t.Fatal(err)
			}
			if b.Len() > 0 {
				got = append(got, b.String())
			}
		default:
			slices.Sort(got)
			return got
		}
	}
}

func encode(o runtime.Object, w io.Writer) error {
	_, err := fmt.Fprint(w, o.(*metav1.PartialObjectMetadata).Name)
	return err
}
