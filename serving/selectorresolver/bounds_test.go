// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestSelectionsAreBounded by the names they have together, and by their number.
func TestSelectionsAreBounded(t *testing.T) {
	now := time.Date(2026, 8, 30, 12, 0, 0, 0, time.UTC)
	s := newSelections()
	many := make([]string, MaxNames)
	for i := range 30 {
		s.put(selection{key: fmt.Sprint(i), names: many, at: now})
		if _, ok := s.get("0", now); !ok {
			t.Fatalf("what was wanted last is forgotten after %d", i)
		}
	}
	if s.names != keptNames || len(s.byKey) != keptNames/MaxNames || s.recent.Len() != len(s.byKey) {
		t.Errorf("%d names in %d selections", s.names, len(s.byKey))
	}
	if _, ok := s.get("1", now); ok {
		t.Error("what was wanted longest ago is kept")
	}
	s.put(selection{key: "0", names: many[:1], at: now})
	if s.names != keptNames-MaxNames+1 {
		t.Errorf("%d names after one selection has one only", s.names)
	}
	for i := range 2 * kept {
		s.put(selection{key: fmt.Sprint("empty ", i), at: now})
	}
	if len(s.byKey) != kept || s.names != 0 {
		t.Errorf("%d selections with %d names", len(s.byKey), s.names)
	}
	if _, ok := s.get(fmt.Sprint("empty ", 2*kept-1), now.Add(keptFor)); ok || len(s.byKey) != kept-1 {
		t.Errorf("an old one is found %t, and %d are kept", ok, len(s.byKey))
	}
}

// TestGate: no namespace has all places, and nothing is left of who has gone.
func TestGate(t *testing.T) {
	g := newGate()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var leave []func()
	enter := func(namespace string, places int) {
		t.Helper()
		for range places {
			l, err := g.enter(t.Context(), namespace)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		if _, err := g.enter(ended, namespace); !errors.Is(err, context.Canceled) {
			t.Errorf("one place more in %q: %v", namespace, err)
		}
	}
	for i := range lists / listsByNamespace {
		enter(fmt.Sprint("n", i), listsByNamespace)
	}
	enter("another", 0)
	for _, l := range leave {
		l()
	}
	leave = nil
	enter("n0", listsByNamespace)
	for _, l := range leave {
		l()
	}
	if len(g.shares) != 0 {
		t.Errorf("%d shares are left", len(g.shares))
	}
}
