// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fairshare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAllows(t *testing.T) {
	tests := map[string]struct{ own, total, more, limit, most int }{
		"a single tenant has half":             {limit: 90, most: 45},
		"of an odd limit it has the odd one":   {limit: 91, most: 46},
		"the only one":                         {limit: 1, most: 1},
		"nothing":                              {limit: 0, most: 0},
		"what others have is not for it":       {total: 45, limit: 90, most: 23},
		"the last one":                         {total: 89, limit: 90, most: 1},
		"all is in use":                        {total: 90, limit: 90, most: 0},
		"more than all is in use":              {total: 95, limit: 90, most: 0},
		"over its share since others came":     {own: 45, total: 68, limit: 90, most: 45},
		"it has all, after a lower limit":      {own: 90, total: 90, limit: 10, most: 90},
		"many at a time":                       {more: 20, limit: 90, most: 40},
		"many at a time, all of its own":       {own: 40, total: 40, more: 5, limit: 90, most: 45},
		"more at a time than a share":          {more: 46, limit: 90, most: 0},
		"as many as a share of an empty limit": {more: 45, limit: 90, most: 45},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			own, total, more := test.own, test.total, max(test.more, 1)
			for own <= test.most && Allows(own, total, more, test.limit) {
				own, total = own+more, total+more
			}
			if own != test.most {
				t.Errorf("it has %d, want %d", own, test.most)
			}
		})
	}
}

// TestTenantsThatGrowTogether: n tenants have n/(n+1) of the limit, each the same.
func TestTenantsThatGrowTogether(t *testing.T) {
	for _, n := range []int{1, 2, 3, 8, 9, 59} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			const limit = 3600 // a multiple of each n+1
			own, total := make([]int, n), 0
			for grows := true; grows; {
				grows = false
				for i := range own {
					if Allows(own[i], total, 1, limit) {
						own[i]++
						total++
						grows = true
					}
				}
			}
			if diff := cmp.Diff(slices.Repeat([]int{limit / (n + 1)}, n), own); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
