// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"math/rand/v2"
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

// labelledTable is a table that is large enough for indexes: pods in three
// namespaces, of which one has most, 50 to a team.
func labelledTable() (*Table, *rand.Rand) {
	store, _ := newStore()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 4 * scanned {
		key := Key{[]string{"few", "many", "many", "some"}[i%4], fmt.Sprintf("pod-%04d", i)}
		store.Pods.SetMeta(key, teamOf(i/50))
		store.Pods.Publish([]Update{{key, sample("n", 0, 1)}})
	}
	return store.Pods, random
}

func teamOf(n int) *Meta {
	return &Meta{UID: "u", Labels: map[string]string{"team": fmt.Sprint(n), "org": "shop"}}
}

// TestSelect compares it with a list of all while objects come, go and change.
func TestSelect(t *testing.T) {
	table, random := labelledTable()
	compare := func(round int) {
		t.Helper()
		for _, namespace := range []string{"", "few", "many", "none"} {
			for _, required := range [][]Label{
				nil, {{"team", "7"}}, {{"org", "shop"}}, {{"org", "shop"}, {"team", "7"}}, {{"team", "none"}}, {{"unknown", "x"}}, {{"team", "new"}},
			} {
				for _, after := range []Key{{}, {"many", "pod-0359"}, {"many", "pod-0361"}, {"zz", ""}} {
					var want, got []string
					for o := range table.List(namespace, after) {
						if hasAll(o, required) {
							want = append(want, o.Namespace+"/"+o.Name)
						}
					}
					for o := range table.Select(namespace, required, after) {
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
			i := random.IntN(5 * scanned)
			key := Key{[]string{"few", "many", "many", "some"}[i%4], fmt.Sprintf("pod-%04d", i)}
			switch random.IntN(4) {
			case 0:
				table.DeleteMeta(key)
			case 1:
				table.SetMeta(key, &Meta{UID: "u", Labels: map[string]string{"team": "new"}})
			case 2:
				table.SetMeta(key, &Meta{UID: "u"})
			default:
				table.SetMeta(key, teamOf(random.IntN(10)))
			}
			table.Publish([]Update{{key, sample("n", round, round+2)}})
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

// TestSelectGoesThroughFew is what the index is for.
func TestSelectGoesThroughFew(t *testing.T) {
	table, _ := labelledTable()
	tests := map[string]struct {
		namespace string
		required  []Label
		want      int
	}{
		"a rare label":              {"", []Label{{"team", "7"}}, 50},
		"a rare one and a frequent": {"", []Label{{"org", "shop"}, {"team", "7"}}, 50},
		"a frequent one":            {"", []Label{{"org", "shop"}}, 4 * scanned},
		"none of that value":        {"", []Label{{"team", "none"}}, 0},
		"a small namespace":         {"few", []Label{{"team", "7"}}, scanned},
		"a large namespace":         {"many", []Label{{"team", "7"}}, 25},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := 0
			for range table.Select(test.namespace, test.required, Key{}) {
				n++
			}
			if n != test.want {
				t.Errorf("goes through %d objects, want %d", n, test.want)
			}
			for range table.Select(test.namespace, test.required, Key{}) {
				break // whoever has seen enough
			}
		})
	}
}

// TestIndexesAreBounded: clients choose labels.
func TestIndexesAreBounded(t *testing.T) {
	table, _ := labelledTable()
	for n := range 10 * maxIndexed {
		table.Select("", []Label{{fmt.Sprint("label-", n), "x"}}, Key{})
	}
	if n := len(table.labels); n != maxIndexed {
		t.Errorf("%d labels are indexed, want %d", n, maxIndexed)
	}
	n := 0
	for range table.Select("", []Label{{"team", "7"}}, Key{}) {
		n++
	}
	if n != 4*scanned {
		t.Errorf("%d objects without an index, want all %d", n, 4*scanned)
	}
}

// TestUnusedIndexes are forgotten, those in use are not.
func TestUnusedIndexes(t *testing.T) {
	store, clock := newStore()
	for i := range 2 * scanned {
		store.Pods.SetMeta(podKey(fmt.Sprint(i)), teamOf(i/10))
	}
	store.Pods.Select("", []Label{{"team", "1"}}, Key{})
	store.Pods.Select("", []Label{{"org", "shop"}}, Key{})
	for range 3 {
		clock.SetTime(clock.Now().Add(indexKept / 2))
		store.Pods.Select("", []Label{{"team", "1"}}, Key{})
		store.Pods.Sweep()
	}
	if store.Pods.labels["team"] == nil || store.Pods.labels["org"] != nil {
		t.Errorf("indexed: %v", store.Pods.labels)
	}
}

// BenchmarkSelect finds a hundredth of 30,000 pods by a label.
func BenchmarkSelect(b *testing.B) {
	table, nodes := benchTable()
	for n, updates := range nodes {
		for _, u := range updates {
			table.SetMeta(u.Key, teamOf(n/10))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := 0
		for range table.Select("", []Label{{"team", fmt.Sprint(i % 100)}}, Key{}) {
			n++
		}
		if n != benchNodes*benchPods/100 {
			b.Fatalf("%d pods", n)
		}
	}
}
