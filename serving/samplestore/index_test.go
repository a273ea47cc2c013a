// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestIndexFollowsChurn adds and removes entries between lists: the index always holds the
// entries of the collection, in order, and counts them.
func TestIndexFollowsChurn(t *testing.T) {
	store, clock := newStore()
	random := rand.New(rand.NewPCG(1, 2))
	namespaces := []string{"blog", "shop"}
	// In the model, keys without metadata are false: they stay until the sweep.
	collection, model := store.Pods, map[string]map[string]bool{"blog": {}, "shop": {}}
	for round := range 300 {
		for range random.IntN(8) {
			namespace, name := namespaces[random.IntN(2)], fmt.Sprintf("%02d", random.IntN(40))
			key, keys := Key{Namespace: namespace, Name: name}, model[namespace]
			if random.IntN(2) == 0 {
				collection.SetMeta(key, meta("u"))
				keys[name] = true
			} else {
				collection.DeleteMeta(key)
				if keys[name] {
					keys[name] = false
				}
			}
		}
		if random.IntN(3) == 0 {
			clock.Step(2 * maxAge)
			collection.Sweep()
			for _, keys := range model {
				maps.DeleteFunc(keys, func(_ string, hasMeta bool) bool { return !hasMeta })
			}
		}
		all := 0
		for namespace, keys := range model {
			var got []string
			for _, e := range collection.sortedEntries(namespace) {
				got = append(got, e.key.Name)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(keys)), got); diff != "" {
				t.Fatalf("round %d: index of %s (-want +got):\n%s", round, namespace, diff)
			}
			if n := collection.Len(namespace); n != len(keys) {
				t.Fatalf("round %d: %d keys in namespace %s, want %d", round, n, namespace, len(keys))
			}
			all += len(keys)
		}
		if n := collection.Len(""); n != all {
			t.Fatalf("round %d: %d keys, want %d", round, n, all)
		}
	}
}

// BenchmarkIndexAfterChurn is what the first list after one new pod costs beyond
// any other, in a namespace of 30,000 pods.
func BenchmarkIndexAfterChurn(b *testing.B) {
	store, _ := newStore()
	for i := range benchNodes * benchPods {
		store.Pods.SetMeta(podKey(fmt.Sprintf("pod-%05d", i)), meta("u"))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		store.Pods.SetMeta(podKey(fmt.Sprintf("pod-%05d-new", i)), meta("u"))
		store.Pods.sortedEntries(podKey("").Namespace)
	}
}
