// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

var t0 = time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)

const maxAge = 90 * time.Second

// usual settings, for tests that are not about these.
var usual = Settings{BookmarkInterval: time.Minute, MaxAge: time.Hour, StallTimeout: time.Minute}

// unencodable is the name of a pod of which no event can be made.
const unencodable = "unencodable"

var errUnencodable = errors.New("no event can be made of it")

// textItem is a point whose event is a line of text.
type textItem samplestore.Object

func (i *textItem) ItemKey() samplestore.Key      { return i.Key }
func (i *textItem) ItemLabels() map[string]string { return i.Meta.Labels }
func (i *textItem) ItemSequence() uint64          { return i.Sequence }

func (i *textItem) CacheEncode(id runtime.Identifier, _ func(runtime.Object, io.Writer) error, w io.Writer) error {
	b, err := i.Events.Encoded(string(id), func() ([]byte, error) {
		if i.Name == unencodable {
			return nil, errUnencodable
		}
		return fmt.Appendf(nil, "%s/%s %d", i.Key.Namespace, i.Key.Name, i.Point.Usages[0].Memory), nil
	})
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// collectionSource is a collection as a Source.
type collectionSource struct{ *samplestore.Collection }

func (s collectionSource) Get(key samplestore.Key) Item {
	if o := s.Collection.Get(key); o != nil {
		return (*textItem)(o)
	}
	return nil
}

func (s collectionSource) Select(namespace string, required []samplestore.Label, after samplestore.Key) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for o := range s.Collection.Select(namespace, required, after) {
			if !yield((*textItem)(o)) {
				return
			}
		}
	}
}

// world is a hub over a collection, with a clock that only the test moves.
type world struct {
	t          testing.TB
	clock      *clocktesting.FakeClock
	collection *samplestore.Collection
	hub        *Hub
	metrics    *Metrics
	// sample counts the publications: no two points are of the same time.
	sample int
}

func newWorld(t testing.TB) *world {
	c := clocktesting.NewFakeClock(t0)
	w := &world{t: t, clock: c, collection: samplestore.NewStore(c, maxAge).Pods, metrics: newMetrics(t)}
	w.hub = NewHub(collectionSource{w.collection}, c, func() float64 { return 1 }, usual)
	w.collection.Observe(func(objects []*samplestore.Object) {
		items := make([]Item, len(objects))
		for i, o := range objects {
			items[i] = (*textItem)(o)
		}
		w.hub.Publish(items)
	})
	return w
}

// pod makes a pod known, with labels as in "app=web,tier=front".
func (w *world) pod(namespace, name, with string) {
	w.t.Helper()
	set, err := labels.ConvertSelectorToLabelsMap(with)
	if err != nil {
		w.t.Fatal(err)
	}
	w.collection.SetMeta(samplestore.Key{Namespace: namespace, Name: name}, &samplestore.Meta{UID: types.UID(name), Labels: set})
}

// store publishes a point of a pod, whose text shows the value.
func (w *world) store(namespace, name string, value int) {
	w.t.Helper()
	w.sample++
	now := samplestore.TimeOf(w.clock.Now())
	p := &samplestore.Point{
		Time: now, Newest: now + samplestore.Time(w.sample),
		Node: "n", Usages: []samplestore.Usage{{Name: "a", Memory: uint64(value)}},
	}
	if w.collection.Publish([]samplestore.Update{{Key: samplestore.Key{Namespace: namespace, Name: name}, Point: p}}) != 1 {
		w.t.Fatalf("the point of %s/%s is not news", namespace, name)
	}
}

// pass moves the clock, tick by tick.
func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= tick {
		w.clock.Step(min(d, tick))
		w.hub.advance(w.hub.now())
	}
}

func bookmark(end bool) runtime.Object {
	b := &metav1.PartialObjectMetadata{}
	if end {
		b.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return b
}

// counted is what the watches have counted.
func (w *world) counted() map[string]float64 { return series(w.t, w.metrics.api) }

// watch begins a watch; a zero timeout is none.
func (w *world) watch(r Request, timeout time.Duration) *Watcher {
	w.t.Helper()
	ctx := quiet(w.t)
	if timeout > 0 {
		ctx = deadline{Context: ctx, at: w.clock.Now().Add(timeout)}
	}
	r.NewBookmark = bookmark
	if r.Metrics == nil {
		r.Metrics = w.metrics
	}
	watcher, err := w.hub.Watch(ctx, r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(watcher.Stop)
	return watcher
}

// deadline is a context with a deadline by the test's clock.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

func selecting(t testing.TB, namespace, labelSelector, fieldSelector string) Selection {
	t.Helper()
	s := Selection{Namespace: namespace}
	var err error
	if labelSelector != "" {
		if s.Labels, err = labels.Parse(labelSelector); err != nil {
			t.Fatal(err)
		}
	}
	if fieldSelector != "" {
		if s.Fields, err = fields.ParseSelector(fieldSelector); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// read takes all that is there to take, as the watch handler does.
func read(t testing.TB, w *Watcher) []string {
	t.Helper()
	var got []string
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return append(got, "closed")
			}
			if text := take(t, e); text != "" {
				got = append(got, text)
			}
		default:
			return got
		}
	}
}

// take encodes an event.
func take(t testing.TB, e watch.Event) string {
	t.Helper()
	switch object := e.Object.(type) {
	case *Watcher:
		var b bytes.Buffer
		if err := object.CacheEncode("text", nil, &b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	case *metav1.Status:
		return fmt.Sprintf("%s %d %s", e.Type, object.Code, object.Reason)
	case *metav1.PartialObjectMetadata:
		if object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			return string(e.Type) + " end"
		}
		return string(e.Type)
	}
	t.Fatalf("an event of %T", e.Object)
	return ""
}
