// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		millicores, workers int
	}{
		"nothing":          {0, 0},
		"little":           {1, 1},
		"a core":           {1000, 1},
		"just over a core": {1001, 2},
		"many":             {3500, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shares := split(test.millicores)
			if len(shares) != test.workers {
				t.Fatalf("%d workers, want %d", len(shares), test.workers)
			}
			sum := 0.0
			for _, share := range shares {
				if share <= 0 || share > 1 {
					t.Errorf("a share of %v cores", share)
				}
				sum += share
			}
			if math.Abs(sum-float64(test.millicores)/1000) > 1e-9 {
				t.Errorf("%v cores together, want %d millicores", sum, test.millicores)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		millicores int
		memory     string
		wantErr    string
	}{
		"negative CPU":    {-1, "0", "--millicores"},
		"negative memory": {0, "-1Mi", "--memory"},
		"no quantity":     {0, "lots", "--memory"},
		"no value":        {0, "", "--memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := run(test.millicores, test.memory); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Fatalf("got %v, want an error with %q", err, test.wantErr)
			}
		})
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	if got := len(hold(1 << 20)); got != 1<<20 {
		t.Fatalf("holds %d bytes, want %d", got, 1<<20)
	}
	if got := hold(0); len(got) != 0 {
		t.Fatalf("holds %d bytes, want none", len(got))
	}
}
