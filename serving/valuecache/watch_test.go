// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valuecache

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// check holds what a watch has to read.
func (w *world) check(watcher *stream.Watcher, when string, want ...string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.read(watcher)); diff != "" {
		w.t.Errorf("%s a watch reads (-want +got):\n%s", when, diff)
	}
}

// down is the failure of a source that cannot be reached.
var down = &query.Failure{Source: "p", Reason: query.ReasonConnectionFailed, Message: "connection refused"}

var gone = apierrors.NewNotFound(schema.GroupResource{Resource: "metrics"}, "hits")

func TestWatchesCoalesce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		slow, fast := w.watch(""), w.watch("")
		w.read(slow)
		w.read(fast)
		for i := range 5 {
			w.source.set(map[string]float64{"a": float64(10 + i), "b": 0}, nil)
			time.Sleep(interval)
			w.check(fast, "each interval", fmt.Sprintf("a=%d", 10+i), "b=0")
		}
		w.check(slow, "after five intervals", "a=14", "b=0")
	})
}

// A thousand watches of a metric cost one evaluation an interval and one encoding of
// each value; when the last has ended, nothing is left of them.
func TestThousandWatches(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(cachedEntries, cachedPoints, publishedPoints, failuresTotal)
	query.MetricSet.Register(registry.MustRegister)
	gauge := func(name string, labels map[string]string) float64 {
		t.Helper()
		v, err := testutil.GetGaugeMetricValue(cachedEntries.With(labels))
		if name == "points" {
			v, err = testutil.GetGaugeMetricValue(cachedPoints.With(labels))
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	of := map[string]string{"group": group}
	inWorld(t, func(t *testing.T, w *world) {
		const watches, intervals = 1000, 3
		var watchers []*stream.Watcher
		for range watches {
			watchers = append(watchers, w.watch(""))
		}
		for _, watcher := range watchers {
			w.read(watcher)
		}
		before, encoded := w.source.count(), w.encoded
		for range intervals {
			time.Sleep(interval)
			for _, watcher := range watchers {
				if got := w.read(watcher); len(got) != 2 {
					t.Fatalf("a watch reads %q", got)
				}
			}
		}
		if n := w.source.count() - before; n != intervals {
			t.Errorf("%d evaluations in %d intervals", n, intervals)
		}
		if n := w.encoded - encoded; n != 2*intervals {
			t.Errorf("%d encodings of 2 values in %d intervals", n, intervals)
		}
		if entries, points := gauge("entries", of), gauge("points", of); entries != 1 || points != 2 {
			t.Errorf("%v entries with %v points", entries, points)
		}
		for _, watcher := range watchers {
			watcher.Stop()
		}
		time.Sleep(linger + tick)
		if open, _ := w.hub.Watchers(); open != 0 {
			t.Errorf("%d watches are open", open)
		}
		if n := len(w.store.all()); n != 0 {
			t.Errorf("%d entries are left", n)
		}
		if entries, points := gauge("entries", of), gauge("points", of); entries != 0 || points != 0 {
			t.Errorf("in the end %v entries with %v points", entries, points)
		}
		before = w.source.count()
		time.Sleep(time.Hour)
		if n := w.source.count() - before; n != 0 {
			t.Errorf("%d evaluations for nobody", n)
		}
	}) // and no goroutine, or the bubble would not end
}

// A sub that ends while its metric ceases to exist leaves the gauges as they were.
func TestEntryThatEndsTwice(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	registry.MustRegister(cachedEntries, cachedPoints)
	inWorld(t, func(t *testing.T, w *world) {
		release, err := w.store.Subscribe(t.Context(), w.subscription())
		if err != nil {
			t.Fatal(err)
		}
		release()
		f := w.store.all()[0]
		f.end(true)
		w.change(func() { w.readErr = gone })
		f.read()
		points, err := testutil.GetGaugeMetricValue(cachedPoints.WithLabelValues(group))
		if err != nil || points != 0 {
			t.Errorf("%v points, %v", points, err)
		}
	})
}

func TestReconnectFindsTheValues(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		watcher := w.watch("")
		w.read(watcher)
		watcher.Stop()
		time.Sleep(linger - time.Second)
		w.source.set(nil, down)
		watcher = w.watch("")
		w.check(watcher, "soon after the last one", "a=1", "b=2")
	})
}

func TestSourceFailsWhileWatched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		watcher := w.watch("")
		w.read(watcher)
		w.source.set(map[string]float64{"a": 5}, down)
		time.Sleep(30 * time.Second)
		w.check(watcher, "while the source fails")
		late := w.watch("")
		w.check(late, "begun while the source fails", "a=1", "b=2")
		late.Stop()
		time.Sleep(time.Minute)
		if _, err := w.store.Subscribe(t.Context(), w.subscription()); !errors.Is(err, error(down)) && !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("begun when the values are old: %v", err)
		}
		w.source.set(map[string]float64{"a": 5}, nil)
		time.Sleep(time.Minute)
		w.check(watcher, "when the source answers again", "a=5")
	})
}

// A metric without a value since one of its series has none is to a watch what a source that fails is.
func TestMetricThatIsNotWholeWhileWatched(t *testing.T) {
	MetricSet.Register(metrics.NewKubeRegistry().MustRegister)
	inWorld(t, func(t *testing.T, w *world) {
		w.metricQuery.ObjectLabel, w.metricQuery.Labels = "", map[string]string{"team": "x"}
		failures := func() float64 {
			n, err := testutil.GetCounterMetricValue(failuresTotal.WithLabelValues(group, "Infinite"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		watcher, before := w.watch(""), failures()
		w.check(watcher, "at first", "=1", "=2")
		w.source.set(map[string]float64{"a": 5, "b": math.Inf(1)}, nil)
		time.Sleep(2 * interval)
		w.check(watcher, "while one series has no value")
		if n := failures() - before; n != 2 {
			t.Errorf("%v failures in two intervals", n)
		}
		time.Sleep(4 * interval)
		if _, err := w.store.Subscribe(t.Context(), w.subscription()); err == nil || !strings.Contains(err.Error(), `the series {pod="b",team="x"} has none`) {
			t.Errorf("begun when the values are old: %v", err)
		}
		w.source.set(map[string]float64{"a": 5, "b": 6}, nil)
		time.Sleep(interval)
		w.check(watcher, "when all have a value again", "=5", "=6")
	})
}

func TestFirstWatchOfASourceThatFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.source.set(nil, down)
		_, err := w.store.Subscribe(t.Context(), w.subscription())
		var f *query.Failure
		if !errors.As(err, &f) || f.Reason != query.ReasonConnectionFailed {
			t.Errorf("got %v", err)
		}
	})
}

func TestWatchWhoseClientLeavesEarly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		// The evaluator has not evaluated yet.
		if release, err := w.store.Subscribe(ctx, w.subscription()); err == nil {
			release()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		time.Sleep(linger + 2*tick)
		if n := len(w.store.all()); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

func TestMetricThatDoesNotExist(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.change(func() { w.readErr = gone })
		if _, err := w.store.Subscribe(t.Context(), w.subscription()); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		w.change(func() { w.readErr = nil })
		watcher := w.watch("")
		w.check(watcher, "of a metric that exists now", "a=1", "b=2")

		w.change(func() { w.readErr = gone })
		w.store.Refresh()
		if _, err := w.store.Subscribe(t.Context(), w.subscription()); !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
		before := w.source.count()
		time.Sleep(time.Minute)
		w.check(watcher, "of a metric that is gone")
		if n := w.source.count() - before; n != 0 {
			t.Errorf("%d evaluations of a metric that is gone", n)
		}
		w.change(func() { w.readErr = nil })
		time.Sleep(tick)
		w.check(watcher, "of a metric that is back", "a=1", "b=2")
	})
}

func TestEditedRule(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		watcher := w.watch("")
		w.read(watcher)
		time.Sleep(2 * interval)
		w.read(watcher)
		w.change(func() { w.metricQuery.Query.Expression = "hits * 2" })
		w.source.set(map[string]float64{"a": 2, "b": 4}, nil)
		w.store.Refresh()
		w.check(watcher, "at once", "a=2", "b=4")
		if got := w.source.asked[len(w.source.asked)-1]; got != "hits * 2" {
			t.Errorf("the source was asked %q", got)
		}
		before := w.source.count()
		time.Sleep(interval)
		if n := w.source.count() - before; n != 1 {
			t.Errorf("%d evaluations: the old query is evaluated, too", n)
		}
	})
}

// However the slots of the new query lie, its first values are newer than those of the old one, for
// watches that are open and for those that begin then.
func TestEditedRuleAtOnce(t *testing.T) {
	for n := range 8 {
		inWorld(t, func(t *testing.T, w *world) {
			w.metricQuery.Query.Interval = 5 * time.Minute
			watcher := w.watch("")
			time.Sleep(402 * time.Second)
			w.read(watcher)
			before := w.store.Get(samplestore.Key{Namespace: "hits", Name: "a"}).(*item).point.Time
			w.change(func() { w.metricQuery.Query.Expression = fmt.Sprintf("hits * %d", n) })
			w.source.set(map[string]float64{"a": 2, "b": 4}, nil)
			w.store.Refresh()
			w.check(watcher, "at once", "a=2", "b=4")
			late := w.watch("")
			w.check(late, "begun after the edit", "a=2", "b=4")
			if after := w.store.Get(samplestore.Key{Namespace: "hits", Name: "a"}).(*item).point.Time; !after.After(before) {
				t.Errorf("edit %d: the time goes from %s to %s", n, before, after)
			}
			time.Sleep(2 * time.Second)
			w.change(func() { w.metricQuery.Query.Expression = "hits" })
			w.source.set(map[string]float64{"a": 1, "b": 2}, nil)
			w.store.Refresh()
			w.check(watcher, "when the edit is taken back", "a=1", "b=2")
			time.Sleep(5 * time.Minute)
			w.check(watcher, "in the next slot", "a=1", "b=2")
		})
	}
}

// What a rule says of the answer holds at once, too, and not with the next one.
func TestRuleThatReadsInAnotherWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.metricQuery.Query.Interval = time.Hour
		w.source.set(map[string]float64{"a": 1, "b": math.NaN()}, nil)
		watcher := w.watch("")
		w.check(watcher, "at first", "a=1")
		asked := w.source.count()
		w.change(func() { w.metricQuery.NaNAsZero = true })
		w.store.Refresh()
		w.check(watcher, "when NaN is to be zero", "b=0")
		w.store.Refresh()
		w.check(watcher, "when nothing has changed")
		w.change(func() { w.metricQuery.ObjectLabel, w.metricQuery.Labels = "", map[string]string{"team": "x"} })
		late := w.watch("")
		w.check(late, "begun after a change", "=0", "=1")
		w.change(func() { w.metricQuery.NaNAsZero, w.metricQuery.OmitInvalid = false, true })
		w.store.Refresh()
		again := w.watch("")
		w.check(again, "when NaN is no value again", "=1")
		if n := w.source.count() - asked; n != 0 {
			t.Errorf("%d evaluations for that", n)
		}
	})
}

// A stand-in of a rule that is edited while its source fails.
func TestFallbackThatComesWhileTheSourceFails(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.metricQuery.Query.Interval = time.Hour
		watcher := w.watch("")
		w.read(watcher)
		w.source.set(nil, &query.Failure{Source: "p", Reason: query.ReasonRejected, Message: "no such function"})
		time.Sleep(time.Hour)
		w.check(watcher, "while the source rejects the query")
		seven := 7.0
		w.follow = func() []string { return []string{"a"} }
		w.change(func() { w.metricQuery.Fallback = &query.Fallback{AfterFailures: 1, Static: &seven} })
		w.store.Refresh()
		w.check(watcher, "with a stand-in", "a=7")
	})
}

// While there is nothing to ask nothing is asked, and what comes then is told of soon.
func TestNothingToAsk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mq := w.metricQuery
		w.metricQuery = query.MetricQuery{}
		watcher := w.watch("")
		w.check(watcher, "at first")
		first := w.store.ResourceVersion("hits")
		time.Sleep(10 * time.Minute)
		if n := w.source.count(); n != 0 {
			t.Errorf("%d evaluations for nothing", n)
		}
		if later := w.store.ResourceVersion("hits"); later <= first {
			t.Errorf("the resourceVersion is %s, after %s", later, first)
		}
		w.change(func() { w.metricQuery = mq })
		time.Sleep(tick)
		w.check(watcher, "when there is something", "a=1", "b=2")
		w.change(func() { w.metricQuery = query.MetricQuery{} })
		time.Sleep(interval)
		w.read(watcher)
		late := w.watch("")
		w.check(late, "begun when there is nothing again")
		before := w.source.count()
		time.Sleep(10 * time.Minute)
		if n := w.source.count() - before; n != 0 {
			t.Errorf("%d evaluations for nothing again", n)
		}

		w.source.set(nil, down)
		w.change(func() { w.metricQuery = mq })
		if _, err := w.store.Subscribe(t.Context(), w.subscription()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("begun when there is something, and the source fails: %v", err)
		}
	})
}

// What is asked names the objects, which come and go.
func TestQuestionThatChangesWithEachRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sub, n := w.subscription(), 0
		read := sub.Read
		sub.Read = func() (query.MetricQuery, error) {
			r, err := read()
			n++
			r.Query.Expression = fmt.Sprint(n)
			return r, err
		}
		release, err := w.store.Subscribe(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * interval)
		// Each at the beginning of its slot, and at once when it is another.
		if n := w.source.count(); n > 30 {
			t.Errorf("%d evaluations in 10 intervals", n)
		}
		release()
		release()
	})
}

func TestObjectsComeGoAndChange(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		web, db := map[string]string{"app": "web"}, map[string]string{"app": "db"}
		w.objects = map[string]map[string]string{"a": web, "b": db}
		watcher := w.watch("app=web")
		w.check(watcher, "at first", "a=1")

		w.source.set(map[string]float64{"a": 2, "b": 3, "c": 4, "d": 5}, nil)
		w.change(func() { w.objects["c"], w.objects["b"] = web, web })
		time.Sleep(interval)
		w.check(watcher, "with one that came and one that changed", "a=2", "b=3", "c=4")

		w.change(func() { delete(w.objects, "a"); w.objects["b"] = db })
		time.Sleep(interval)
		w.check(watcher, "with one that went and one that changed", "c=4")
		late := w.watch("")
		w.check(late, "begun now", "b=3", "c=4")
	})
}

// The same samples are no new data point, whatever the labels of their objects.
func TestSamplesThatAreNotRenewed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		began := time.Now()
		sampled := func(at time.Time) {
			w.source.mu.Lock()
			defer w.source.mu.Unlock()
			w.source.at = func(time.Time) time.Time { return at }
		}
		sampled(began)
		w.objects = map[string]map[string]string{"a": {"app": "web"}, "b": nil}
		watcher := w.watch("")
		w.check(watcher, "at first", "a=1", "b=2")
		time.Sleep(interval)
		w.check(watcher, "with the same samples")
		w.change(func() { w.objects["b"] = map[string]string{"app": "web"} })
		time.Sleep(interval)
		w.check(watcher, "with other labels")
		late := w.watch("app=web")
		w.check(late, "that selects the other labels", "a=1", "b=2")
		encoded := w.encoded

		w.source.set(map[string]float64{"a": 1, "b": 7}, nil)
		time.Sleep(interval)
		w.check(watcher, "with another value of the same time", "b=7")
		sampled(began.Add(-5 * time.Second))
		time.Sleep(interval)
		w.check(watcher, "with samples that are a little older")
		sampled(began.Add(-time.Hour))
		time.Sleep(interval)
		w.check(watcher, "after the clock was set back", "a=1", "b=7")
		if n := w.encoded - encoded; n != 3 {
			t.Errorf("%d encodings of 3 data points", n)
		}
	})
}

func TestFallbackIsWatched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		value := 9.0
		w.metricQuery.Fallback = &query.Fallback{AfterFailures: 2, Static: &value}
		w.follow = func() []string { return []string{"a", "c"} }
		watcher := w.watch("")
		w.read(watcher)
		w.source.set(nil, down)
		time.Sleep(interval)
		w.check(watcher, "after one failure")
		time.Sleep(interval)
		w.check(watcher, "after two failures", "a=9", "c=9")
		late := w.watch("")
		w.check(late, "begun now", "a=9", "c=9")
		w.source.set(map[string]float64{"a": 9}, nil)
		time.Sleep(2 * interval)
		w.check(watcher, "when the source answers again", "a=9")
	})
}

// A stand-in is as of when the source was found to fail, which is later than the slot as of
// which the source is asked again.
func TestSourceAnswersAgainAmidAnInterval(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		value := 9.0
		w.metricQuery.Query.Interval = 5 * time.Minute
		w.metricQuery.Fallback = &query.Fallback{AfterFailures: 1, Static: &value}
		w.follow = func() []string { return []string{"a"} }
		watcher := w.watch("")
		w.read(watcher)
		w.source.set(nil, down)
		for len(w.read(watcher)) == 0 {
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Second)
		w.read(watcher)
		w.source.set(map[string]float64{"a": 1}, nil)
		time.Sleep(30 * time.Second)
		w.check(watcher, "when the source answers again", "a=1")
		time.Sleep(30 * time.Second)
		w.check(watcher, "later in the same interval")
	})
}

func TestResourceVersion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if got := w.store.ResourceVersion("hits"); got != "1" {
			t.Errorf("of what is not followed: %q", got)
		}
		w.source.set(nil, nil)
		watcher := w.watch("")
		w.check(watcher, "without values")
		one := w.store.ResourceVersion("hits")
		time.Sleep(interval)
		synctest.Wait()
		two := w.store.ResourceVersion("hits")
		answer, err, _ := w.evaluator.Cached(w.metricQuery.Query)
		if err != nil || two != fmt.Sprint(answer.Time.UnixMilli()) || one == two || one == "1" {
			t.Errorf("%q, and %q of %v, %v", one, two, answer, err)
		}
	})
}

// Subscriptions are added, released, read again and published at the same time.
func TestConcurrentUse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for n := range 20 {
					sub := w.subscription()
					sub.ID = fmt.Sprint((i + n) % 4)
					release, err := w.store.Subscribe(t.Context(), sub)
					if err != nil {
						t.Error(err)
						return
					}
					watcher, err := w.hub.Watch(t.Context(), stream.Request{Metrics: stream.NewMetrics(stream.API{}), Selection: stream.Selection{Namespace: sub.ID}, Release: release})
					if err != nil {
						t.Error(err)
						return
					}
					drain(t, watcher)
					time.Sleep(time.Duration(i+n) * 7 * time.Second)
					drain(t, watcher)
					watcher.Stop()
				}
			})
		}
		all.Go(func() {
			for n := range 100 {
				w.change(func() { w.metricQuery.Query.Expression = fmt.Sprint(n % 3) })
				w.store.Refresh()
				time.Sleep(11 * time.Second)
			}
		})
		all.Wait()
		time.Sleep(time.Minute)
		if n := len(w.store.all()); n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}
