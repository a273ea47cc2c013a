// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package delayqueue

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type task struct {
	Entry
	name string
}

var epoch = time.Unix(1_000_000, 0)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func TestQueue(t *testing.T) {
	a, b, c := &task{name: "a"}, &task{name: "b"}, &task{name: "c"}
	for name, test := range map[string]struct {
		do   func(*Queue[*task])
		want []string
	}{
		"empty":               {func(*Queue[*task]) {}, nil},
		"the earliest first":  {func(q *Queue[*task]) { q.Put(a, at(3)); q.Put(b, at(1)); q.Put(c, at(2)) }, []string{"b", "c", "a"}},
		"moved to the front":  {func(q *Queue[*task]) { q.Put(a, at(3)); q.Put(b, at(1)); q.Put(a, at(0)) }, []string{"a", "b"}},
		"moved to the back":   {func(q *Queue[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); q.Put(a, at(3)) }, []string{"b", "a"}},
		"taken out":           {func(q *Queue[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); q.Put(c, at(3)); q.Remove(b) }, []string{"a", "c"}},
		"what is not in":      {func(q *Queue[*task]) { q.Put(a, at(1)); q.Remove(b) }, []string{"a"}},
		"taken out twice":     {func(q *Queue[*task]) { q.Put(a, at(1)); q.Remove(a); q.Remove(a) }, nil},
		"in again":            {func(q *Queue[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); q.Remove(a); q.Put(a, at(3)) }, []string{"b", "a"}},
		"all moved, in a row": {func(q *Queue[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); shift(q) }, []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var q Queue[*task]
			test.do(&q)
			if diff := cmp.Diff(test.want, drain(t, &q)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// shift moves each item while iterating over them.
func shift(q *Queue[*task]) {
	for item := range q.All() {
		q.Put(item, at(-int(item.Due().Sub(epoch).Seconds())))
	}
}

// drain removes all items in order and returns their names.
func drain(t *testing.T, q *Queue[*task]) []string {
	t.Helper()
	var names []string
	for q.Len() > 0 {
		first, ok := q.Peek()
		if !ok || !first.Queued() || !first.Due().Equal(q.NextDue()) {
			t.Fatalf("the first of %d: %v, queued %t, due at %s, next at %s", q.Len(), ok, first.Queued(), first.Due(), q.NextDue())
		}
		due := first.Due()
		q.Remove(first)
		if first.Queued() || !first.Due().Equal(due) {
			t.Errorf("%s is out: queued %t, due at %s, want %s", first.name, first.Queued(), first.Due(), due)
		}
		names = append(names, first.name)
	}
	if first, ok := q.Peek(); ok || first != nil || !q.NextDue().IsZero() {
		t.Errorf("an empty queue: first %v, next %s", first, q.NextDue())
	}
	return names
}

// TestQueueAgainstSorting compares many random steps with a sorted list.
func TestQueueAgainstSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	tasks := make([]*task, 50)
	for i := range tasks {
		tasks[i] = &task{}
	}
	var q Queue[*task]
	for range 5000 {
		item := tasks[random.IntN(len(tasks))]
		if random.IntN(3) == 0 {
			q.Remove(item)
		} else {
			q.Put(item, at(random.IntN(1000)))
		}
		var queued []time.Time
		for _, item := range tasks {
			if item.Queued() {
				queued = append(queued, item.Due())
			}
		}
		if len(queued) != q.Len() {
			t.Fatalf("%d items are queued, the queue has %d", len(queued), q.Len())
		}
		if len(queued) > 0 && !slices.MinFunc(queued, time.Time.Compare).Equal(q.NextDue()) {
			t.Fatalf("next at %s, want %s", q.NextDue(), slices.MinFunc(queued, time.Time.Compare))
		}
	}
}
