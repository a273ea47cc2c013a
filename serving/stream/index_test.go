// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// TestIndexFindsWhatMatches compares the index with asking every group.
func TestIndexFindsWhatMatches(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	value := func() string { return pick("x", "y", "z", "1", "7") }
	values := func() string { return value() + "," + value() }
	requirement := func() string {
		label := pick("app", "tier", "zone")
		return pick(label+"="+value(), label+"!="+value(), label, "!"+label, label+" in ("+values()+")",
			label+" notin ("+values()+")", label+">3", label+"<3")
	}
	index := newIndex()
	groups := map[string]*group{}
	for range 500 {
		var with []string
		for range random.IntN(3) {
			with = append(with, requirement())
		}
		s := selecting(t, pick("", "", "a", "b"), strings.Join(with, ","),
			pick("", "", "metadata.name=p1", "metadata.name!=p1", "metadata.namespace=a")).normalize()
		if groups[s.id()] == nil {
			groups[s.id()] = newGroup(s)
			index.add(groups[s.id()])
		}
	}
	check := func() {
		t.Helper()
		for i := range 200 {
			labels := map[string]string{}
			for range random.IntN(4) {
				labels[pick("app", "tier", "zone")] = value()
			}
			item := &textItem{
				Key:  point.Key{Namespace: pick("a", "b", "c"), Name: fmt.Sprintf("p%d", i%4)},
				Meta: &point.Meta{Labels: labels},
			}
			want, got := map[string]int{}, map[string]int{}
			for id, g := range groups {
				if g.selection.matches(item) {
					want[id] = 1
				}
			}
			index.each(item, func(g *group) { got[g.selection.id()]++ })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%v %v (-want +got):\n%s", item.Key, labels, diff)
			}
		}
	}
	check()
	for id, g := range groups {
		if random.IntN(2) == 0 {
			index.remove(g)
			delete(groups, id)
		}
	}
	check()
	for _, g := range groups {
		index.remove(g)
	}
	if len(index.places) != 0 || index.labelled != 0 {
		t.Errorf("left in the index: %v", index)
	}
}

// TestThousandTerms takes one place, not a thousand.
func TestThousandTerms(t *testing.T) {
	terms := make([]string, 1000)
	for i := range terms {
		terms[i] = fmt.Sprintf("v%04d", i)
	}
	s := selecting(t, "a", "app in ("+strings.Join(terms, ",")+"),tier", "")
	if diff := cmp.Diff(1, len(places(s))); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	w := newWorld(t)
	w.pod("a", "web", "app=v0999,tier=x")
	watcher := w.watch(Request{Selection: s}, 0)
	w.store("a", "web", 1)
	if diff := cmp.Diff([]string{"a/web 1"}, read(t, watcher)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSharedSelection: selections that mean the same are one group.
func TestSharedSelection(t *testing.T) {
	w := newWorld(t)
	for _, s := range []Selection{
		selecting(t, "a", "app=web,tier=x", ""), selecting(t, "a", "tier=x,app=web", ""),
		selecting(t, "", "tier=x,app=web", "metadata.namespace=a"),
	} {
		w.watch(Request{Selection: s}, 0)
	}
	// The third has its field selector still, and so is a group of its own.
	if watchers, groups := w.hub.Watchers(); watchers != 3 || groups != 2 {
		t.Errorf("%d watchers in %d groups", watchers, groups)
	}
}
