// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package figures

import "testing"

func TestMedian(t *testing.T) {
	for name, tc := range map[string]struct {
		all  []float64
		want float64
	}{
		"one":          {[]float64{3}, 3},
		"two":          {[]float64{4, 2}, 3},
		"odd number":   {[]float64{9, 1, 4}, 4},
		"even number":  {[]float64{9, 1, 4, 2}, 3},
		"one outsider": {[]float64{1000, 2, 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Median(tc.all); got != tc.want {
				t.Errorf("median %g, want %g", got, tc.want)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	for name, tc := range map[string]struct {
		unit Unit
		all  []float64
		want string
	}{
		"no value":       {MilliCPU, nil, ""},
		"one":            {MilliCPU, []float64{0.12}, "120 mCPU"},
		"two":            {Ms, []float64{0.001, 0.002}, "1.5 ms (1.0–2.0)"},
		"without a name": {Count, []float64{100, 1200, 1100}, "1,100 (100–1,200)"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.unit.Spread(tc.all); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Thousands(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
