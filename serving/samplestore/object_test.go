// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

func TestResourceVersion(t *testing.T) {
	p := &Point{Time: at(1), Newest: at(2) + 3}
	if got, want := p.ResourceVersion(), "1750000002003"; got != want {
		t.Errorf("ResourceVersion() = %q, want %q", got, want)
	}
}

func TestObjectChangesWithEither(t *testing.T) {
	store, _ := newStore()
	key := podKey("p")
	store.Pods.SetMeta(key, &Meta{UID: "a", Labels: map[string]string{"v": "1"}})
	store.Pods.Publish([]Update{{Key: key, Point: sample("n", 0, 10)}})
	first := store.Pods.Get(key)

	store.Pods.Publish([]Update{{Key: key, Point: sample("n", 0, 10)}})
	if got := store.Pods.Get(key); got != first {
		t.Error("a sample that is known made a new object")
	}
	store.Pods.SetMeta(key, &Meta{UID: "a", Labels: map[string]string{"v": "2"}})
	relabeled := store.Pods.Get(key)
	if relabeled == first || relabeled.Meta.Labels["v"] != "2" || relabeled.Point != first.Point {
		t.Errorf("after new labels: %+v", relabeled)
	}
	store.Pods.Publish([]Update{{Key: key, Point: sample("n", 0, 20)}})
	renewed := store.Pods.Get(key)
	if renewed == relabeled || renewed.Meta != relabeled.Meta || renewed.Point.Newest != at(20) {
		t.Errorf("after a new point: %+v", renewed)
	}
}

func TestEncoded(t *testing.T) {
	o := &Object{Key: podKey("p"), Meta: meta("u"), Point: sample("n", 0, 10)}
	calls := 0
	encode := func(text string, err error) func(*Object) ([]byte, error) {
		return func(*Object) ([]byte, error) { calls++; return []byte(text), err }
	}
	broken := errors.New("broken")
	if _, err := o.Encoded(EncodingJSON, encode("", broken)); !errors.Is(err, broken) {
		t.Errorf("Encoded() error = %v, want %v", err, broken)
	}
	for range 2 {
		for e, text := range map[Encoding]string{EncodingJSON: "json", EncodingProtobuf: "protobuf"} {
			got, err := o.Encoded(e, encode(text, nil))
			if err != nil || string(got) != text {
				t.Errorf("Encoded(%d) = %q, %v, want %q", e, got, err, text)
			}
		}
	}
	if calls != 3 {
		t.Errorf("%d encodings, want one that failed and one of each kind", calls)
	}
}

// TestEncodedOnce calls Encoded concurrently.
func TestEncodedOnce(t *testing.T) {
	const readers = 8
	for range 100 {
		o := &Object{Key: podKey("p"), Meta: meta("u"), Point: sample("n", 0, 10)}
		var calls atomic.Int32
		var running sync.WaitGroup
		start := make(chan struct{})
		for range readers {
			running.Go(func() {
				<-start
				_, err := o.Encoded(EncodingJSON, func(*Object) ([]byte, error) { calls.Add(1); return []byte("json"), nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		running.Wait()
		if got := calls.Load(); got != 1 {
			t.Fatalf("encoded %d times for %d readers", got, readers)
		}
	}
}

func TestCompare(t *testing.T) {
	tests := map[string]struct {
		a, b Key
		want int
	}{
		"equal":     {Key{"a", "b"}, Key{"a", "b"}, 0},
		"namespace": {Key{"a", "z"}, Key{"b", "a"}, -1},
		"name":      {Key{"a", "b"}, Key{"a", "c"}, -1},
		// The namespace counts as a whole, not as a prefix of namespace/name.
		"prefix": {Key{"a", "z"}, Key{"a-", "a"}, -1},
		"node":   {Key{"", "n"}, Key{"a", "a"}, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.a.Compare(tt.b); got != tt.want {
				t.Errorf("%v.Compare(%v) = %d, want %d", tt.a, tt.b, got, tt.want)
			}
			if got := tt.b.Compare(tt.a); got != -tt.want {
				t.Errorf("%v.Compare(%v) = %d, want %d", tt.b, tt.a, got, -tt.want)
			}
		})
	}
}
