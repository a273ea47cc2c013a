// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

// TestNames: of objects with and without points, while some are gone.
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

// TestNamesOfMany goes by an index, and finds what going through all finds.
func TestNamesOfMany(t *testing.T) {
	table, random := labelledTable()
	for range 50 {
		key := Key{"many", fmt.Sprintf("pod-%04d", random.IntN(4*scanned))}
		if random.IntN(2) == 0 {
			table.DeleteMeta(key)
		} else {
			table.SetMeta(key, teamOf(random.IntN(40)))
		}
		selector, err := labels.Parse(fmt.Sprintf("team=%d", random.IntN(40)))
		if err != nil {
			t.Fatal(err)
		}
		want := table.Names("many", labels.Everything())
		want = slices.DeleteFunc(want, func(name string) bool {
			return !selector.Matches(labels.Set(table.lookup(Key{"many", name}).meta.Labels))
		})
		if diff := cmp.Diff(want, table.Names("many", selector)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", selector, diff)
		}
	}
}
