// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

func TestRequiredLabels(t *testing.T) {
	tests := map[string][]Label{
		"":                           nil,
		"app=web":                    {{"app", "web"}},
		"app==web,tier in (front)":   {{"app", "web"}, {"tier", "front"}},
		"app in (web,db)":            nil,
		"app!=web,tier,!canary":      nil,
		"app notin (web),tier=front": {{"tier", "front"}},
	}
	for text, want := range tests {
		selector, err := labels.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, RequiredLabels(selector)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
	if got := RequiredLabels(nil); got != nil {
		t.Errorf("of no selector: %v", got)
	}
	if got := RequiredLabels(labels.Nothing()); got != nil {
		t.Errorf("of a selector that matches nothing: %v", got)
	}
}

// labeledCollection returns a collection that is large enough for indexes: pods in three
// namespaces, most of them in one, 50 to a team.
func labeledCollection() (*Collection, *rand.Rand) {
	store, _ := newStore()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 4 * maxScan {
		key := Key{[]string{"few", "many", "many", "some"}[i%4], fmt.Sprintf("pod-%04d", i)}
		store.Pods.SetMeta(key, teamOf(i/50))
		store.Pods.Publish([]Update{{key, sample("n", 0, 1)}})
	}
	return store.Pods, random
}

func teamOf(n int) *Meta {
	return &Meta{UID: "u", Labels: map[string]string{"team": fmt.Sprint(n), "org": "shop"}}
}

// TestSelect compares Select with List while objects are added, changed and removed.
func TestSelect(t *testing.T) {
	collection, random := labeledCollection()
	compare := func(round int) {
		t.Helper()
		for _, namespace := range []string{"", "few", "many", "none"} {
			for _, required := range [][]Label{
				nil, {{"team", "7"}}, {{"org", "shop"}}, {{"org", "shop"}, {"team", "7"}}, {{"team", "none"}}, {{"unknown", "x"}}, {{"team", "new"}},
			} {
				for _, after := range []Key{{}, {"many", "pod-0359"}, {"many", "pod-0361"}, {"zz", ""}} {
					var want, got []string
					for o := range collection.List(namespace, after) {
						if hasAll(o, required) {
							want = append(want, o.Namespace+"/"+o.Name)
						}
					}
					for o := range collection.Select(namespace, required, after) {
						if hasAll(o, required) {
							got = append(got, o.Namespace+"/"+o.Name)
						}
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("round %d, %q %v after %v (-want +got):\n%s", round, namespace, required, after, diff)
					}
				}
			}
		}
	}
	compare(0)
	for round := range 6 {
		for range 50 {
			i := random.IntN(5 * maxScan)
			key := Key{[]string{"few", "many", "many", "some"}[i%4], fmt.Sprintf("pod-%04d", i)}
			switch random.IntN(4) {
			case 0:
				collection.DeleteMeta(key)
			case 1:
				collection.SetMeta(key, &Meta{UID: "u", Labels: map[string]string{"team": "new"}})
			case 2:
				collection.SetMeta(key, &Meta{UID: "u"})
			default:
				collection.SetMeta(key, teamOf(random.IntN(10)))
			}
			collection.Publish([]Update{{key, sample("n", round, round+2)}})
		}
		compare(round + 1)
	}
}

func hasAll(o *Object, required []Label) bool {
	for _, l := range required {
		if value, has := o.Meta.Labels[l.Name]; !has || value != l.Value {
			return false
		}
	}
	return true
}

// TestSelectGoesThroughFew bounds how many objects Select yields.
func TestSelectGoesThroughFew(t *testing.T) {
	collection, _ := labeledCollection()
	tests := map[string]struct {
		namespace string
		required  []Label
		want      int
	}{
		"a rare label":              {"", []Label{{"team", "7"}}, 50},
		"a rare one and a frequent": {"", []Label{{"org", "shop"}, {"team", "7"}}, 50},
		"a frequent one":            {"", []Label{{"org", "shop"}}, 4 * maxScan},
		"none of that value":        {"", []Label{{"team", "none"}}, 0},
		"a small namespace":         {"few", []Label{{"team", "7"}}, maxScan},
		"a large namespace":         {"many", []Label{{"team", "7"}}, 25},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := 0
			for range collection.Select(test.namespace, test.required, Key{}) {
				n++
			}
			if n != test.want {
				t.Errorf("goes through %d objects, want %d", n, test.want)
			}
			for range collection.Select(test.namespace, test.required, Key{}) {
				break // the caller may stop early
			}
		})
	}
}

// TestIndexesAreBounded: clients choose labels.
func TestIndexesAreBounded(t *testing.T) {
	collection, _ := labeledCollection()
	for n := range 10 * maxIndexes {
		collection.Select("", []Label{{fmt.Sprint("label-", n), "x"}}, Key{})
	}
	if n := len(collection.labels); n != maxIndexes {
		t.Errorf("%d labels are indexed, want %d", n, maxIndexes)
	}
	n := 0
	for range collection.Select("", []Label{{"team", "7"}}, Key{}) {
		n++
	}
	if n != 4*maxScan {
		t.Errorf("%d objects without an index, want all %d", n, 4*maxScan)
	}
}

// TestNames lists objects with and without points, without those that are gone.
func TestNames(t *testing.T) {
	store, _ := newStore()
	for name, team := range map[string]int{"web-1": 1, "web-2": 1, "db-1": 2} {
		store.Pods.SetMeta(Key{"shop", name}, teamOf(team))
	}
	store.Pods.SetMeta(Key{"bank", "web-3"}, teamOf(1))
	store.Pods.SetMeta(Key{"shop", "web-4"}, teamOf(1))
	store.Pods.DeleteMeta(Key{"shop", "web-4"})
	store.Pods.Publish([]Update{{Key{"shop", "web-1"}, sample("n", 0, 1)}})
	tests := map[string]struct {
		namespace, selector string
		want                []string
	}{
		"all":            {"shop", "", []string{"db-1", "web-1", "web-2"}},
		"by label":       {"shop", "team=1", []string{"web-1", "web-2"}},
		"by several":     {"shop", "team in (2,3),org", []string{"db-1"}},
		"none":           {"shop", "team=9", []string{}},
		"no such object": {"empty", "", []string{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(tc.selector)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, store.Pods.Names(tc.namespace, selector)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestNamesOfMany compares the result of an index with that of a scan.
func TestNamesOfMany(t *testing.T) {
	collection, random := labeledCollection()
	for range 50 {
		key := Key{"many", fmt.Sprintf("pod-%04d", random.IntN(4*maxScan))}
		if random.IntN(2) == 0 {
			collection.DeleteMeta(key)
		} else {
			collection.SetMeta(key, teamOf(random.IntN(40)))
		}
		selector, err := labels.Parse(fmt.Sprintf("team=%d", random.IntN(40)))
		if err != nil {
			t.Fatal(err)
		}
		want := collection.Names("many", labels.Everything())
		want = slices.DeleteFunc(want, func(name string) bool {
			return !selector.Matches(labels.Set(collection.lookup(Key{"many", name}).meta.Labels))
		})
		if diff := cmp.Diff(want, collection.Names("many", selector)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", selector, diff)
		}
	}
}

// TestUnusedIndexes removes unused indexes and keeps the others.
func TestUnusedIndexes(t *testing.T) {
	store, clock := newStore()
	for i := range 2 * maxScan {
		store.Pods.SetMeta(podKey(fmt.Sprint(i)), teamOf(i/10))
	}
	store.Pods.Select("", []Label{{"team", "1"}}, Key{})
	store.Pods.Select("", []Label{{"org", "shop"}}, Key{})
	for range 3 {
		clock.SetTime(clock.Now().Add(indexTTL / 2))
		store.Pods.Select("", []Label{{"team", "1"}}, Key{})
		store.Pods.Sweep()
	}
	if store.Pods.labels["team"] == nil || store.Pods.labels["org"] != nil {
		t.Errorf("indexed: %v", store.Pods.labels)
	}
}

// BenchmarkSelect finds a hundredth of 30,000 pods by a label.
func BenchmarkSelect(b *testing.B) {
	collection, nodes := benchCollection()
	for n, updates := range nodes {
		for _, u := range updates {
			collection.SetMeta(u.Key, teamOf(n/10))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := 0
		for range collection.Select("", []Label{{"team", fmt.Sprint(i % 100)}}, Key{}) {
			n++
		}
		if n != benchNodes*benchPods/100 {
			b.Fatalf("%d pods", n)
		}
	}
}
