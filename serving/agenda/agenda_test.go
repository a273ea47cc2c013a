// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package agenda

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type task struct {
	Place
	name string
}

var epoch = time.Unix(1_000_000, 0)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func TestAgenda(t *testing.T) {
	a, b, c := &task{name: "a"}, &task{name: "b"}, &task{name: "c"}
	for name, test := range map[string]struct {
		do   func(*Agenda[*task])
		want []string
	}{
		"empty":               {func(*Agenda[*task]) {}, nil},
		"the earliest first":  {func(q *Agenda[*task]) { q.Put(a, at(3)); q.Put(b, at(1)); q.Put(c, at(2)) }, []string{"b", "c", "a"}},
		"moved to the front":  {func(q *Agenda[*task]) { q.Put(a, at(3)); q.Put(b, at(1)); q.Put(a, at(0)) }, []string{"a", "b"}},
		"moved to the back":   {func(q *Agenda[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); q.Put(a, at(3)) }, []string{"b", "a"}},
		"taken out":           {func(q *Agenda[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); q.Put(c, at(3)); q.Remove(b) }, []string{"a", "c"}},
		"what is not in":      {func(q *Agenda[*task]) { q.Put(a, at(1)); q.Remove(b) }, []string{"a"}},
		"taken out twice":     {func(q *Agenda[*task]) { q.Put(a, at(1)); q.Remove(a); q.Remove(a) }, nil},
		"in again":            {func(q *Agenda[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); q.Remove(a); q.Put(a, at(3)) }, []string{"b", "a"}},
		"all moved, in a row": {func(q *Agenda[*task]) { q.Put(a, at(1)); q.Put(b, at(2)); shift(q) }, []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var q Agenda[*task]
			test.do(&q)
			if diff := cmp.Diff(test.want, drain(t, &q)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// shift moves each item while it goes through them.
func shift(q *Agenda[*task]) {
	for item := range q.All() {
		q.Put(item, at(-int(item.Due().Sub(epoch).Seconds())))
	}
}

// drain takes all out, in order.
func drain(t *testing.T, q *Agenda[*task]) []string {
	t.Helper()
	var names []string
	for q.Len() > 0 {
		first, ok := q.First()
		if !ok || !first.Listed() || !first.Due().Equal(q.Next()) {
			t.Fatalf("the first of %d: %v, listed %t, due at %s, next at %s", q.Len(), ok, first.Listed(), first.Due(), q.Next())
		}
		due := first.Due()
		q.Remove(first)
		if first.Listed() || !first.Due().Equal(due) {
			t.Errorf("%s is out: listed %t, due at %s, want %s", first.name, first.Listed(), first.Due(), due)
		}
		names = append(names, first.name)
	}
	if first, ok := q.First(); ok || first != nil || !q.Next().IsZero() {
		t.Errorf("an empty agenda: first %v, next %s", first, q.Next())
	}
	return names
}

// TestAgendaAgainstSorting compares many steps by chance with a sorted list.
func TestAgendaAgainstSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	tasks := make([]*task, 50)
	for i := range tasks {
		tasks[i] = &task{}
	}
	var q Agenda[*task]
	for range 5000 {
		item := tasks[random.IntN(len(tasks))]
		if random.IntN(3) == 0 {
			q.Remove(item)
		} else {
			q.Put(item, at(random.IntN(1000)))
		}
		var listed []time.Time
		for _, item := range tasks {
			if item.Listed() {
				listed = append(listed, item.Due())
			}
		}
		if len(listed) != q.Len() {
			t.Fatalf("%d items are listed, the agenda has %d", len(listed), q.Len())
		}
		if len(listed) > 0 && !slices.MinFunc(listed, time.Time.Compare).Equal(q.Next()) {
			t.Fatalf("next at %s, want %s", q.Next(), slices.MinFunc(listed, time.Time.Compare))
		}
	}
}
