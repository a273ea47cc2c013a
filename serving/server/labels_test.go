// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLabelSharing(t *testing.T) {
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
			s := newLabelSharing()
			first, second := s.share(tc.first), s.share(tc.second)
			if diff := cmp.Diff(tc.second, second); diff != "" {
				t.Errorf("other labels came out (-want +got):\n%s", diff)
			}
			if got := sameMap(first, second); got != tc.wantShared {
				t.Errorf("shared: %t, want %t", got, tc.wantShared)
			}
		})
	}
	if got := newLabelSharing().share(map[string]string{}); got != nil {
		t.Errorf("no labels are held as %v", got)
	}
}

func TestLabelSharingForgets(t *testing.T) {
	s := newLabelSharing()
	for i := range 3 * sharedLabelSets {
		labels := map[string]string{"i": fmt.Sprint(i)}
		if got := s.share(maps.Clone(labels)); !maps.Equal(got, labels) {
			t.Fatalf("%v came out for %v", got, labels)
		}
	}
	if n := s.recent.Len(); n != sharedLabelSets {
		t.Errorf("%d sets are remembered, want %d", n, sharedLabelSets)
	}
}

func BenchmarkLabelSharing(b *testing.B) {
	labels := map[string]string{
		"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production",
		"app.kubernetes.io/version": "1.2.3", "pod-template-hash": "6f7d8b9c5d", "team": "payments",
	}
	s := newLabelSharing()
	b.ReportAllocs()
	for b.Loop() {
		s.share(labels)
	}
}
