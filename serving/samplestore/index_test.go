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
// entries of the table, in order.
func TestIndexFollowsChurn(t *testing.T) {
	store, clock := newStore()
	random := rand.New(rand.NewPCG(1, 2))
	table, model := store.Pods, map[string]bool{}
	for round := range 300 {
		for range random.IntN(8) {
			name := fmt.Sprintf("%02d", random.IntN(40))
			if random.IntN(2) == 0 {
				table.SetMeta(podKey(name), meta("u"))
				model[name] = true
			} else {
				table.DeleteMeta(podKey(name))
				delete(model, name)
			}
		}
		if random.IntN(3) == 0 {
			clock.Step(2 * maxAge)
			table.Sweep()
		}
		var got []string
		for _, e := range table.sortedEntries(podKey("").Namespace) {
			// An entry without metadata stays until the sweep.
			if e.meta != nil {
				got = append(got, e.key.Name)
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(model)), got); diff != "" {
			t.Fatalf("round %d: index (-want +got):\n%s", round, diff)
		}
		for _, namespace := range []string{"", podKey("").Namespace} {
			if n := table.Len(namespace); n < len(model) {
				t.Fatalf("round %d: %d keys in namespace %q, want at least %d", round, n, namespace, len(model))
			}
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
