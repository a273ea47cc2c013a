// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// names are those of what Select yields.
func names(s *Cache, namespace string, after samplestore.Key) []string {
	var names []string
	for i := range s.Select(namespace, nil, after) {
		names = append(names, i.ItemKey().Namespace+"/"+i.ItemKey().Name)
	}
	return names
}

func TestStoreIsASource(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var numbers []uint64
		w.store.Observe(func(items []stream.Item) {
			for _, i := range items {
				numbers = append(numbers, i.ItemSequence())
				if n := w.store.Sequence(); n < i.ItemSequence() {
					t.Errorf("point %d is published, and the newest is %d", i.ItemSequence(), n)
				}
				if got := w.store.Get(i.ItemKey()); got == nil || got.ItemSequence() != i.ItemSequence() {
					t.Errorf("%v is published, and %v is visible", i.ItemKey(), got)
				}
			}
		})
		for _, id := range []string{"y", "x"} {
			sub := w.subscription()
			sub.ID = id
			release, err := w.store.Subscribe(t.Context(), sub)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(numbers) != 4 || !slices.IsSorted(numbers) || len(slices.Compact(numbers)) != 4 {
			t.Errorf("points have the numbers %v", numbers)
		}
		if stored := w.store.Stored(numbers[3]); time.Since(stored) > 2*time.Second {
			t.Errorf("the newest point was stored at %s", stored)
		}
		tests := map[string]struct {
			namespace string
			after     samplestore.Key
			want      []string
		}{
			"a sub":                 {"x", samplestore.Key{}, []string{"x/a", "x/b"}},
			"after a key":           {"x", samplestore.Key{Namespace: "x", Name: "a"}, []string{"x/b"}},
			"after one that is not": {"x", samplestore.Key{Namespace: "x", Name: "aa"}, []string{"x/b"}},
			"after the last":        {"x", samplestore.Key{Namespace: "x", Name: "b"}, nil},
			"after another sub":     {"x", samplestore.Key{Namespace: "y", Name: "a"}, nil},
			"no such sub":           {"z", samplestore.Key{}, nil},
			"all":                   {"", samplestore.Key{}, []string{"x/a", "x/b", "y/a", "y/b"}},
			"all, after a key":      {"", samplestore.Key{Namespace: "x", Name: "b"}, []string{"y/a", "y/b"}},
		}
		for name, test := range tests {
			if diff := cmp.Diff(test.want, names(w.store, test.namespace, test.after)); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if w.store.Get(samplestore.Key{Namespace: "x", Name: "c"}) != nil || w.store.Get(samplestore.Key{Namespace: "z", Name: "a"}) != nil {
			t.Error("there is what is not there")
		}
	})
}

func TestExternalValuesAreSelectedByTheirLabels(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.metricQuery.ObjectLabel = ""
		sub := w.subscription()
		sub.Labels = nil
		release, err := w.store.Subscribe(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if diff := cmp.Diff([]string{`hits/{pod="a"}`, `hits/{pod="b"}`}, names(w.store, "hits", samplestore.Key{})); diff != "" {
			t.Error(diff)
		}
		item := w.store.Get(samplestore.Key{Namespace: "hits", Name: `{pod="b"}`})
		if diff := cmp.Diff(map[string]string{"pod": "b"}, item.ItemLabels()); diff != "" {
			t.Error(diff)
		}
	})
}

// fixed answers a benchmark at once.
type fixed struct{ answer *query.Result }

func (f fixed) Query(context.Context, query.Query) (*query.Result, error) { return f.answer, nil }

func (f fixed) Subscribe(_ query.Query, _ time.Time, receive func(*query.Result, error)) (stop func()) {
	receive(f.answer, nil)
	return func() {}
}

// BenchmarkReceive is what a result of a watched query costs, all of whose values
// are new.
func BenchmarkReceive(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			answer := func(at time.Time) *query.Result {
				a := &query.Result{Time: at}
				for i := range n {
					a.Samples = append(a.Samples, query.Sample{Labels: map[string]string{"pod": fmt.Sprintf("web-%05d", i)}, Value: float64(i), Time: at})
				}
				return a
			}
			now := time.Now()
			store := NewCache(group, clock.RealClock{}, fixed{answer(now)})
			mq := query.MetricQuery{ObjectLabel: "pod", Query: query.Query{Expression: "hits", Interval: interval}}
			release, err := store.Subscribe(b.Context(), Subscription{ID: "hits", Read: func() (query.MetricQuery, error) { return mq, nil }})
			if err != nil {
				b.Fatal(err)
			}
			defer release()
			f := store.all()[0]
			q, _ := f.current()
			answers := []*query.Result{answer(now.Add(time.Minute)), answer(now.Add(-time.Minute))}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f.receive(q, answers[i%2], nil)
			}
		})
	}
}

// What was evaluated earlier is no news, whatever the times of its samples; what was evaluated later is, though its
// sample is older than the evaluation before.
func TestNewsAreLaterEvaluations(t *testing.T) {
	t0 := time.Unix(1_700_000_000, 0)
	type answer struct {
		evaluated, sample time.Duration // since t0
		value             float64
		news              bool
	}
	tests := map[string][]answer{
		"earlier, and earlier again": {{0, 0, 1, true}, {-5 * time.Second, -5 * time.Second, 2, false}, {-3 * time.Second, -3 * time.Second, 3, false}, {time.Second, time.Second, 4, true}},
		"the times of samples come":  {{0, 0, 1, true}, {15 * time.Second, 5 * time.Second, 2, true}, {30 * time.Second, 20 * time.Second, 2, true}},
		"an older sample is newer":   {{0, 0, 1, true}, {5 * time.Second, -5 * time.Second, 2, true}},
		"nothing is new":             {{0, -5 * time.Second, 1, true}, {15 * time.Second, -5 * time.Second, 1, false}},
		"the clock is set back":      {{0, 0, 1, true}, {-time.Hour, -time.Hour, 2, true}},
	}
	for name, answers := range tests {
		t.Run(name, func(t *testing.T) {
			result := func(a answer) *query.Result {
				return &query.Result{Time: t0.Add(a.evaluated), Samples: []query.Sample{{Labels: map[string]string{"pod": "a"}, Value: a.value, Time: t0.Add(a.sample)}}}
			}
			store := NewCache(group, clock.RealClock{}, fixed{result(answers[0])})
			var news []bool
			store.Observe(func([]stream.Item) { news[len(news)-1] = true })
			mq := query.MetricQuery{ObjectLabel: "pod", Query: query.Query{Expression: "hits", Interval: interval}}
			news = append(news, false)
			release, err := store.Subscribe(t.Context(), Subscription{ID: "hits", Read: func() (query.MetricQuery, error) { return mq, nil }})
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			f := store.all()[0]
			q, _ := f.current()
			want := []bool{answers[0].news}
			for _, a := range answers[1:] {
				news, want = append(news, false), append(want, a.news)
				f.receive(q, result(a), nil)
			}
			if diff := cmp.Diff(want, news); diff != "" {
				t.Errorf("which are news (-want +got): %s", diff)
			}
		})
	}
}
