// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestNewObjects: an answer may be without an object that came a moment ago, as of a
// replica that does not know it yet, and not without one that has been there.
func TestNewObjects(t *testing.T) {
	list := func(after time.Duration, names ...string) *listing {
		l := &listing{began: t0.Add(after)}
		for _, name := range names {
			l.objects = append(l.objects, Object{Namespace: "a", Name: name})
		}
		return l
	}
	const known = 20 * time.Second // the interval, and patience
	tests := map[string]struct {
		// others are what other checks listed meanwhile.
		others        []*listing
		before, after *listing
		want          []string
	}{
		"all there first":           {before: list(0, "x", "y"), after: list(1, "x", "y"), want: []string{"a/x", "a/y"}},
		"one that leaves":           {before: list(0, "x", "y"), after: list(1, "y"), want: []string{"a/y"}},
		"one that no list had":      {before: list(0, "x", "new"), after: list(1, "x", "new"), want: []string{"a/x"}},
		"one of a moment ago":       {others: []*listing{list(0, "new")}, before: list(known-1, "x", "new"), after: list(known, "x", "new"), want: []string{"a/x"}},
		"one of an interval ago":    {others: []*listing{list(0, "new")}, before: list(known, "x", "new"), after: list(known, "x", "new"), want: []string{"a/new", "a/x"}},
		"one that is listed again":  {others: []*listing{list(0, "new"), list(known-1, "new")}, before: list(known, "new"), after: list(known, "new"), want: []string{"a/new"}},
		"of lists that cross":       {others: []*listing{list(9, "new"), list(0, "new")}, before: list(known, "new"), after: list(known, "new"), want: []string{"a/new"}},
		"listed beside and earlier": {others: []*listing{list(known, "new")}, before: list(1, "new"), after: list(known, "new")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			target := &target{
				resource: Resource{Name: "pods"}, newObjects: &newObjects{},
				options: Options{PointInterval: known * 3 / 4, Patience: known / 4},
			}
			target.newObjects.residents("pods", list(0, "x", "y").objects)
			target.newObjects.residents("nodes", list(0, "new").objects)
			for _, l := range test.others {
				target.newObjects.note("pods", l.objects, l.began)
			}
			got := slices.Sorted(maps.Keys(target.expected(test.before, test.after)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("expected (-want +got):\n%s", diff)
			}
		})
	}
}
