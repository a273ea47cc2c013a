// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLabelInterner(t *testing.T) {
	tests := map[string]struct {
		first, second map[string]string
		wantShared    bool
	}{
		"equal":                        {map[string]string{"a": "1", "b": "2"}, map[string]string{"b": "2", "a": "1"}, true},
		"another value":                {map[string]string{"a": "1"}, map[string]string{"a": "2"}, false},
		"one more":                     {map[string]string{"a": "1"}, map[string]string{"a": "1", "b": "2"}, false},
		"names and values do not blur": {map[string]string{"ab": "c"}, map[string]string{"a": "bc"}, false},
		"values that change places":    {map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "2", "b": "1"}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newLabelInterner()
			first, second := s.intern(tc.first), s.intern(tc.second)
			if diff := cmp.Diff(tc.second, second); diff != "" {
				t.Errorf("other labels came out (-want +got):\n%s", diff)
			}
			if got := sameMap(first, second); got != tc.wantShared {
				t.Errorf("shared: %t, want %t", got, tc.wantShared)
			}
		})
	}
	if got := newLabelInterner().intern(map[string]string{}); got != nil {
		t.Errorf("no labels are held as %v", got)
	}
}

func TestLabelInternerIsBounded(t *testing.T) {
	s := newLabelInterner()
	for i := range 3 * internedLabelSets {
		labels := map[string]string{"i": fmt.Sprint(i)}
		if got := s.intern(maps.Clone(labels)); !maps.Equal(got, labels) {
			t.Fatalf("%v came out for %v", got, labels)
		}
	}
	if n := s.recent.Len(); n != internedLabelSets {
		t.Errorf("%d sets are held, want %d", n, internedLabelSets)
	}
}

func BenchmarkLabelInterner(b *testing.B) {
	labels := map[string]string{
		"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production",
		"app.kubernetes.io/version": "1.2.3", "pod-template-hash": "6f7d8b9c5d", "team": "payments",
	}
	s := newLabelInterner()
	b.ReportAllocs()
	for b.Loop() {
		s.intern(labels)
	}
}
