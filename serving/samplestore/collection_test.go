// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

const maxAge = 90 * time.Second

// epoch is a whole second, as resourceVersions are compared as text.
var epoch = time.Unix(1_750_000_000, 0)

func at(seconds int) Time { return TimeOf(epoch.Add(time.Duration(seconds) * time.Second)) }

func newStore() (*Store, *clocktesting.FakeClock) {
	clock := clocktesting.NewFakeClock(epoch)
	return NewStore(clock, maxAge), clock
}

func podKey(name string) Key { return Key{Namespace: "ns", Name: name} }

// sample is a point of one container that started at `started` and was sampled
// at `newest`, in seconds after epoch.
func sample(node string, started, newest int) *Point {
	return &Point{
		Time: at(newest), Newest: at(newest), Started: at(started), Window: 15 * time.Second, Node: node,
		Usages: []Usage{{Name: "main", CPU: 1, Memory: 1}},
	}
}

func meta(uid types.UID) *Meta { return &Meta{UID: uid} }

// created is the metadata of a pod that was created a number of seconds after epoch.
func created(uid types.UID, seconds int) *Meta { return &Meta{UID: uid, Created: at(seconds)} }

// list returns the listed keys as namespace/name.
func list(t *Collection, namespace string, after Key) []string {
	var names []string
	for o := range t.List(namespace, after) {
		names = append(names, o.Namespace+"/"+o.Name)
	}
	return names
}

// step is one thing that happens to a collection of pods.
type step struct {
	// after is the time since the last step.
	after   time.Duration
	publish *Point
	setMeta *Meta
	delete  bool
	sweep   bool

	// wantAccepted is how many updates Publish should accept.
	wantAccepted int
	// want is the point that should be served afterwards; nil for none.
	want *Point
}

func TestPublishRules(t *testing.T) {
	first, second := sample("n1", 0, 10), sample("n1", 0, 25)
	recreated, recreatedNext := sample("n1", 20, 30), sample("n1", 20, 45)
	moved, movedNext := sample("n2", 20, 30), sample("n2", 20, 45)
	unstarted := &Point{Time: at(30), Newest: at(30), Node: "n2"}

	tests := map[string]struct{ steps []step }{
		"a point without metadata is rejected": {[]step{
			{publish: first},
		}},
		"metadata without a point is not served": {[]step{
			{setMeta: meta("a")},
		}},
		"metadata first": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
		}},
		"a point that came before the metadata waits for its next report": {[]step{
			{publish: first},
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
		}},
		"a newer sample replaces": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{publish: second, wantAccepted: 1, want: second},
		}},
		"the same and older samples of a frozen kubelet are rejected": {[]step{
			{setMeta: meta("a")},
			{publish: second, wantAccepted: 1, want: second},
			{publish: sample("n1", 0, 25), want: second},
			{publish: first, want: second},
		}},
		"a point ages out, with its own time": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{after: maxAge + 10*time.Second, want: first},
			{after: time.Millisecond},
		}},
		"the object is gone": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{delete: true},
		}},
		"a late report after the object is gone is rejected": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{delete: true},
			{publish: second},
		}},
		"a pod that moved: the later start wins": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{publish: moved, wantAccepted: 1, want: moved},
			{publish: sample("n1", 0, 40), want: moved},
			{publish: movedNext, wantAccepted: 1, want: movedNext},
		}},
		"a pod that moved: the order of the reports does not matter": {[]step{
			{setMeta: meta("a")},
			{publish: moved, wantAccepted: 1, want: moved},
			{publish: sample("n1", 0, 40), want: moved},
		}},
		"two nodes and the same start: the first stays while it is young": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{publish: sample("n2", 0, 30), want: first},
			{after: maxAge + 11*time.Second},
			{publish: sample("n2", 0, 100), wantAccepted: 1, want: sample("n2", 0, 100)},
		}},
		"two nodes without start times: the first stays": {[]step{
			{setMeta: meta("a")},
			{publish: &Point{Time: at(10), Newest: at(10), Node: "n1"}, wantAccepted: 1, want: &Point{Time: at(10), Newest: at(10), Node: "n1"}},
			{publish: unstarted, want: &Point{Time: at(10), Newest: at(10), Node: "n1"}},
		}},
		"a pod recreated under its name: late reports of the old one are barred": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{setMeta: meta("b")},
			{publish: second},
			{publish: moved, wantAccepted: 1, want: moved},
		}},
		"the same UID again keeps the point": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{setMeta: meta("a"), want: first},
		}},
		"the barrier falls after a maxAge": {[]step{
			// As a mirror pod that was deleted and came back: its containers ran on.
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{setMeta: meta("b")},
			{after: maxAge, publish: sample("n1", 0, 80)},
			{after: time.Second, publish: sample("n1", 0, 90), wantAccepted: 1, want: sample("n1", 0, 90)},
		}},
		"a barrier that fell does not come back": {[]step{
			{setMeta: meta("a")},
			{publish: moved, wantAccepted: 1, want: moved},
			{setMeta: meta("b")},
			// On a node whose clock is behind.
			{after: maxAge + time.Second, publish: sample("n1", 5, 80), wantAccepted: 1, want: sample("n1", 5, 80)},
			{setMeta: meta("c")},
			{publish: sample("n1", 15, 90), wantAccepted: 1, want: sample("n1", 15, 90)},
		}},
		"deleted and recreated: the barrier stays": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{delete: true},
			{setMeta: meta("b")},
			{publish: second},
			{publish: moved, wantAccepted: 1, want: moved},
		}},
		"a pod recreated under its name: its first report comes before its metadata": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{publish: recreated, wantAccepted: 1, want: recreated},
			{setMeta: created("b", 15), want: recreated},
			{publish: recreatedNext, wantAccepted: 1, want: recreatedNext},
		}},
		"deleted and recreated: its first report comes before both": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{publish: recreated, wantAccepted: 1, want: recreated},
			{delete: true},
			{setMeta: created("b", 15)},
			{publish: second}, // late, of the old one
			{publish: recreatedNext, wantAccepted: 1, want: recreatedNext},
		}},
		"a container restarted before the pod was recreated": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{publish: recreated, wantAccepted: 1, want: recreated},
			{setMeta: created("b", 21)},
			{publish: recreatedNext}, // late, of the old one
			{publish: sample("n1", 22, 50), wantAccepted: 1, want: sample("n1", 22, 50)},
		}},
		"a sweep does not lift the barrier": {[]step{
			{setMeta: meta("a")},
			{publish: first, wantAccepted: 1, want: first},
			{delete: true},
			{after: 30 * time.Second, sweep: true},
			{publish: second},
			{setMeta: meta("b")},
			{publish: second},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			store, clock := newStore()
			collection, key := store.Pods, podKey("p")
			for i, s := range tt.steps {
				clock.Step(s.after)
				if s.setMeta != nil {
					collection.SetMeta(key, s.setMeta)
				}
				if s.delete {
					collection.DeleteMeta(key)
				}
				if s.sweep {
					collection.Sweep()
				}
				accepted := 0
				if s.publish != nil {
					accepted = collection.Publish([]Update{{Key: key, Point: s.publish}})
				}
				if accepted != s.wantAccepted {
					t.Errorf("step %d: Publish() = %d, want %d", i, accepted, s.wantAccepted)
				}
				var got *Point
				if o := collection.Get(key); o != nil {
					got = o.Point
				}
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("step %d: served point (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestListOrder(t *testing.T) {
	store, clock := newStore()
	for _, key := range []Key{{"b", "2"}, {"a", "2"}, {"c", "1"}, {"a", "10"}, {"b", "1"}, {"a", "1"}} {
		store.Pods.SetMeta(key, meta("u"))
		store.Pods.Publish([]Update{{Key: key, Point: sample("n", 0, 10)}})
	}
	// Neither of these is served.
	store.Pods.SetMeta(Key{"a", "3"}, meta("u"))
	store.Pods.Publish([]Update{{Key: Key{"b", "3"}, Point: sample("n", 0, 10)}})
	for _, name := range []string{"n2", "n1", "n10"} {
		store.Nodes.SetMeta(Key{Name: name}, meta("u"))
		store.Nodes.Publish([]Update{{Key: Key{Name: name}, Point: sample(name, 0, 10)}})
	}

	tests := map[string]struct {
		collection *Collection
		namespace  string
		after      Key
		want       []string
	}{
		"all namespaces":                         {store.Pods, "", Key{}, []string{"a/1", "a/10", "a/2", "b/1", "b/2", "c/1"}},
		"one namespace":                          {store.Pods, "b", Key{}, []string{"b/1", "b/2"}},
		"a namespace that is not there":          {store.Pods, "bb", Key{}, nil},
		"continued":                              {store.Pods, "", Key{"a", "10"}, []string{"a/2", "b/1", "b/2", "c/1"}},
		"continued after a namespace's last":     {store.Pods, "", Key{"a", "2"}, []string{"b/1", "b/2", "c/1"}},
		"continued after a key that is gone":     {store.Pods, "", Key{"a", "11"}, []string{"a/2", "b/1", "b/2", "c/1"}},
		"continued after a namespace that is":    {store.Pods, "", Key{"aa", "5"}, []string{"b/1", "b/2", "c/1"}},
		"continued after the end":                {store.Pods, "", Key{"z", "z"}, nil},
		"one namespace, continued":               {store.Pods, "a", Key{"a", "1"}, []string{"a/10", "a/2"}},
		"one namespace, continued before it":     {store.Pods, "b", Key{"a", "1"}, []string{"b/1", "b/2"}},
		"one namespace, continued after it":      {store.Pods, "a", Key{"b", "1"}, nil},
		"nodes":                                  {store.Nodes, "", Key{}, []string{"/n1", "/n10", "/n2"}},
		"nodes, continued":                       {store.Nodes, "", Key{Name: "n10"}, []string{"/n2"}},
		"nodes, continued after one that is not": {store.Nodes, "", Key{Name: "n11"}, []string{"/n2"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, list(tt.collection, tt.namespace, tt.after)); diff != "" {
				t.Errorf("List() (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("stops when the reader does", func(t *testing.T) {
		n := 0
		for range store.Pods.List("", Key{}) {
			if n++; n == 2 {
				break
			}
		}
		if n != 2 {
			t.Errorf("read %d objects, want 2", n)
		}
	})
	t.Run("follows changes", func(t *testing.T) {
		store.Pods.DeleteMeta(Key{"a", "10"})
		store.Pods.SetMeta(Key{"aa", "1"}, meta("u"))
		store.Pods.Publish([]Update{{Key: Key{"aa", "1"}, Point: sample("n", 0, 10)}})
		want := []string{"a/1", "a/2", "aa/1", "b/1", "b/2", "c/1"}
		if diff := cmp.Diff(want, list(store.Pods, "", Key{})); diff != "" {
			t.Errorf("List() (-want +got):\n%s", diff)
		}
	})
	t.Run("leaves out what is too old", func(t *testing.T) {
		clock.Step(maxAge + 11*time.Second)
		if got := list(store.Pods, "", Key{}); got != nil {
			t.Errorf("List() = %v, want none", got)
		}
		store.SetMaxAge(2 * maxAge)
		if got := list(store.Pods, "c", Key{}); len(got) != 1 {
			t.Errorf("List() with a longer maxAge = %v, want one", got)
		}
	})
}

// TestSwept: points and keys that have none are counted.
func TestSwept(t *testing.T) {
	store, clock := newStore()
	collection := store.Pods
	for _, name := range []string{"has", "lacks", "lacks-too"} {
		collection.SetMeta(podKey(name), meta("u"))
	}
	collection.Publish([]Update{{Key: podKey("has"), Point: sample("n", 0, 10)}, {Key: podKey("unknown"), Point: sample("n", 0, 10)}})
	for _, want := range [][2]int64{{1, 2}, {0, 3}} {
		collection.Sweep()
		if points, without := collection.Swept(); points != want[0] || without != want[1] {
			t.Errorf("Swept() = %d, %d, want %d", points, without, want)
		}
		clock.Step(2 * maxAge)
	}
}

func TestSweep(t *testing.T) {
	store, clock := newStore()
	collection := store.Pods
	stays, ages, ends, unknown := podKey("stays"), podKey("ages"), podKey("ends"), Key{"other", "unknown"}
	for _, key := range []Key{stays, ages, ends} {
		collection.SetMeta(key, meta("u"))
	}
	// What kube-apiserver does not know is not kept, whatever a kubelet reports.
	for _, key := range []Key{stays, ages, ends, unknown} {
		collection.Publish([]Update{{Key: key, Point: sample("n", 0, 10)}})
	}
	if got := collection.Sweep(); got != 3 {
		t.Errorf("Sweep() = %d points, want 3", got)
	}
	clock.Step(maxAge + 11*time.Second)
	collection.Publish([]Update{{Key: stays, Point: sample("n", 0, 95)}})
	collection.DeleteMeta(ends)
	if got := collection.Sweep(); got != 1 {
		t.Errorf("Sweep() = %d points, want 1", got)
	}
	if collection.lookup(unknown) != nil || collection.namespaces["other"] != nil {
		t.Error("an entry was made for an unknown pod")
	}
	if collection.lookup(ends) == nil {
		t.Error("the entry of a pod that just ended is gone, so late reports would pass")
	}
	if !collection.Known(ages) || collection.lookup(ages).point != nil {
		t.Error("want the metadata of a pod without points, and no point")
	}
	clock.Step(maxAge + time.Second)
	if got := collection.Sweep(); got != 0 {
		t.Errorf("Sweep() = %d points, want 0", got)
	}
	if collection.lookup(ends) != nil {
		t.Error("the entry of a pod that ended long ago is left")
	}
	// What was swept can come back.
	collection.Publish([]Update{{Key: stays, Point: sample("n", 0, 190)}})
	if collection.Get(stays) == nil {
		t.Error("want the point after a sweep")
	}
}

func TestKnown(t *testing.T) {
	store, _ := newStore()
	key := podKey("p")
	store.Pods.Publish([]Update{{Key: key, Point: sample("n", 0, 10)}})
	if store.Pods.Known(key) {
		t.Error("Known() = true with a point alone")
	}
	store.Pods.SetMeta(key, meta("u"))
	if !store.Pods.Known(key) {
		t.Error("Known() = false with metadata")
	}
	store.Pods.DeleteMeta(key)
	if store.Pods.Known(key) || store.Pods.Known(podKey("q")) {
		t.Error("Known() = true without metadata")
	}
	store.Pods.DeleteMeta(podKey("q")) // of which nothing is known
}

// TestRetainMeta removes what a new list of objects does not have.
func TestRetainMeta(t *testing.T) {
	s, _ := newStore()
	other := Key{Namespace: "other", Name: "a"}
	for _, key := range []Key{podKey("a"), podKey("b"), other} {
		s.Pods.SetMeta(key, meta("1"))
		s.Pods.Publish([]Update{{Key: key, Point: sample("n", 0, 15)}})
	}
	s.Pods.RetainMeta(func(key Key) bool { return key == podKey("b") })
	if diff := cmp.Diff([]string{"ns/b"}, list(s.Pods, "", Key{})); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if s.Pods.Known(podKey("a")) || s.Pods.Known(other) || !s.Pods.Known(podKey("b")) {
		t.Error("metadata is known of what was removed, or not known of the rest")
	}
}

// TestEqualMeta: metadata that did not change leaves the object as it is, with what was
// encoded of it.
func TestEqualMeta(t *testing.T) {
	s, _ := newStore()
	set := func(uid types.UID, app string) *Object {
		s.Pods.SetMeta(podKey("a"), &Meta{UID: uid, Labels: map[string]string{"app": app}})
		return s.Pods.Get(podKey("a"))
	}
	set("1", "x")
	s.Pods.Publish([]Update{{Key: podKey("a"), Point: sample("n", 0, 15)}})
	before := s.Pods.Get(podKey("a"))
	if got := set("1", "x"); got != before {
		t.Error("another object with equal metadata")
	}
	if got := set("1", "y"); got == before || got.Meta.Labels["app"] != "y" {
		t.Errorf("the object has the labels %v", got.Meta.Labels)
	}
	if got := set("2", "y"); got != nil {
		t.Error("the point of another UID is served")
	}
}
