// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lru

import (
	"fmt"
	"strings"
	"testing"
)

func TestCache(t *testing.T) {
	c := New(3, 100, func(k, v string) int { return len(k) + len(v) })
	keys := func() string {
		var all []string
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			if v, ok := c.Get(k); ok {
				all = append(all, fmt.Sprintf("%s=%d", k, len(v)))
			}
		}
		return strings.Join(all, " ")
	}
	expect := func(want string) {
		t.Helper()
		if got := keys(); got != want {
			t.Errorf("the cache has %q, want %q", got, want)
		}
	}
	for _, k := range []string{"a", "b", "c", "d"} {
		c.Add(k, "1")
	}
	expect("b=1 c=1 d=1")
	c.Add("c", "123456789") // again, larger
	c.Add("e", "1234567890")
	expect("b=1 c=9 d=1") // e is larger than a tenth
	c.Get("b")
	c.Add("a", "1")
	expect("a=1 b=1 d=1")
	c.Clear()
	expect("")
}

func TestCacheBoundsSize(t *testing.T) {
	c := New(1000, 100, func(_, v string) int { return len(v) })
	for i := range 500 {
		c.Add(fmt.Sprint(i%50), strings.Repeat("x", i%10+1))
		if c.size > 100 {
			t.Fatalf("%d bytes are kept", c.size)
		}
	}
	if _, ok := c.Get("49"); !ok {
		t.Error("the newest entry is gone")
	}
}
