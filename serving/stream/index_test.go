// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
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
		if random.IntN(2) == 0 { // more than is matched at once
			for i := range maxTerms {
				with = append(with, fmt.Sprintf("app notin (w%d,%s)", i, value()))
			}
		}
		s := selecting(t, pick("", "", "a", "b"), strings.Join(with, ","),
			pick("", "", "metadata.name=p1", "metadata.name!=p1", "metadata.namespace=a")).Normalize()
		entry, err := newIndexEntry(s)
		if err != nil {
			t.Fatal(err)
		}
		if groups[entry.id] == nil {
			groups[entry.id] = newGroup(s, entry)
			index.add(groups[entry.id])
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
				Key:  samplestore.Key{Namespace: pick("a", "b", "c"), Name: fmt.Sprintf("p%d", i%4)},
				Meta: &samplestore.Meta{Labels: labels},
			}
			want, got := map[string]int{}, map[string]int{}
			for id, g := range groups {
				if g.selection.matches(item) {
					want[id] = 1
				}
			}
			index.each(item, func(g *group) {
				if g.prefiltered || g.selection.matches(item) {
					got[g.id]++
				}
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%v %v (-want +got):\n%s", item.Key, labels, diff)
			}
		}
	}
	check()
	matched := 0
	for _, g := range groups {
		if g.prefiltered {
			matched++
		}
	}
	if matched == 0 || matched == len(groups) {
		t.Errorf("%d of %d groups are matched by the index, want some and not all", matched, len(groups))
	}
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
	if len(index.buckets) != 0 || index.byLabel != 0 {
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
	if diff := cmp.Diff(1, len(bucketKeys(s))); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
	w := newWorld(t)
	w.pod("a", "web", "app=v0999,tier=x")
	watcher := w.watch(Request{Selection: s}, 0)
	w.store("a", "web", 1)
	if diff := cmp.Diff([]string{"a/web 1"}, read(t, watcher)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCostlySelections are not matched while others wait for the same point: neither
// one with many terms, nor many with a few. All of them hear of what they select.
func TestCostlySelections(t *testing.T) {
	differs := func(terms, salt int) string {
		all := make([]string, terms)
		for i := range all {
			all[i] = fmt.Sprintf("app!=v%d-%d", i, salt)
		}
		return strings.Join(all, ",")
	}
	w := newWorld(t)
	w.pod("a", "other", "app=v0-0")
	w.pod("a", "web", "app=web")
	costly := w.watch(Request{Selection: selecting(t, "", differs(1000, 0), "")}, 0)
	many := make([]*Watcher, 100)
	for i := range many {
		many[i] = w.watch(Request{Selection: selecting(t, "", differs(maxTerms, i), "")}, 0)
	}
	if costly.group.prefiltered || !many[0].group.prefiltered {
		t.Errorf("matched by the publisher: that of 1000 terms %t, the first of %d terms %t", costly.group.prefiltered, maxTerms, many[0].group.prefiltered)
	}
	if at := w.hub.index.buckets[bucketKey{kind: inNamespace}]; at.terms > maxBucketTerms {
		t.Errorf("%d terms are matched at one place", at.terms)
	}
	for _, watcher := range append(many, costly) {
		read(t, watcher)
	}
	w.store("a", "other", 1)
	w.store("a", "other", 2)
	w.store("a", "web", 1)
	if diff := cmp.Diff([]string{"a/web 1"}, read(t, costly)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := w.counted()["watch_coalesced_points_total"]; n != 0 {
		t.Errorf("%v points count as coalesced that it does not select", n)
	}
	for i, watcher := range many {
		want := []string{"a/web 1"}
		if i > 0 {
			want = []string{"a/other 2", "a/web 1"}
		}
		if diff := cmp.Diff(want, read(t, watcher)); diff != "" {
			t.Errorf("watch %d (-want +got):\n%s", i, diff)
		}
		watcher.Stop()
	}
	if at := w.hub.index.buckets[bucketKey{kind: inNamespace}]; at.terms != 0 {
		t.Errorf("%d terms are left after those who asked for them", at.terms)
	}
}

// TestLongSelector: what a watch keeps is bounded.
func TestLongSelector(t *testing.T) {
	w, released := newWorld(t), 0
	values := make([]string, maxSelector/8)
	for i := range values {
		values[i] = fmt.Sprintf("value-%d", i)
	}
	_, err := w.hub.Watch(t.Context(), Request{Metrics: w.metrics,
		Selection: selecting(t, "", "app in ("+strings.Join(values, ",")+")", ""), Release: func() { released++ },
	})
	if !apierrors.IsBadRequest(err) || released != 1 || len(w.hub.groups) != 0 {
		t.Errorf("error %v, released %d times, %d groups", err, released, len(w.hub.groups))
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
	for watcher := range w.hub.watchers {
		if watcher.request.Selection.Labels != nil {
			t.Error("a watcher keeps selectors of its own beside those of its group")
		}
	}
	// The third has its field selector still, and so is a group of its own.
	if watchers, groups := w.hub.Watchers(); watchers != 3 || groups != 2 {
		t.Errorf("%d watchers in %d groups", watchers, groups)
	}
}
