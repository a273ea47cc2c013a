// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package selectorresolver

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// TestListLimiter verifies that no namespace takes all slots, and that unused namespaces are removed.
func TestListLimiter(t *testing.T) {
	limiter := newListLimiter()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var release []func()
	acquire := func(namespace string, slots int) {
		t.Helper()
		for range slots {
			r, err := limiter.acquire(t.Context(), namespace)
			if err != nil {
				t.Fatal(err)
			}
			release = append(release, r)
		}
		if _, err := limiter.acquire(ended, namespace); !errors.Is(err, context.Canceled) {
			t.Errorf("one slot more in %q: %v", namespace, err)
		}
	}
	for i := range maxLists / maxListsPerNamespace {
		acquire(fmt.Sprint("n", i), maxListsPerNamespace)
	}
	acquire("another", 0)
	for _, r := range release {
		r()
	}
	release = nil
	acquire("n0", maxListsPerNamespace)
	for _, r := range release {
		r()
	}
	if len(limiter.namespaces) != 0 {
		t.Errorf("%d namespaces are left", len(limiter.namespaces))
	}
}
