// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestGate verifies that no namespace takes all slots, and that unused namespaces are removed.
func TestGate(t *testing.T) {
	g := newGate()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var leave []func()
	enter := func(namespace string, slots int) {
		t.Helper()
		for range slots {
			l, err := g.enter(t.Context(), namespace)
			if err != nil {
				t.Fatal(err)
			}
			leave = append(leave, l)
		}
		if _, err := g.enter(ended, namespace); !errors.Is(err, context.Canceled) {
			t.Errorf("one slot more in %q: %v", namespace, err)
		}
	}
	for i := range maxLists / maxListsPerNamespace {
		enter(fmt.Sprint("n", i), maxListsPerNamespace)
	}
	enter("another", 0)
	for _, l := range leave {
		l()
	}
	leave = nil
	enter("n0", maxListsPerNamespace)
	for _, l := range leave {
		l()
	}
	if len(g.namespaces) != 0 {
		t.Errorf("%d namespaces are left", len(g.namespaces))
	}
}
