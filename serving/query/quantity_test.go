// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"math"
	"math/big"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestQuantity(t *testing.T) {
	tests := map[string]struct {
		value float64
		want  string // empty for none
	}{
		"zero":                         {0, "0"},
		"negative zero":                {math.Copysign(0, -1), "0"},
		"whole":                        {42, "42"},
		"thousandths":                  {0.001, "1m"},
		"as written, not as stored":    {1.0005, "1001m"},
		"half away from zero":          {0.0005, "1m"},
		"half away from zero, below":   {-0.0005, "-1m"},
		"less than half":               {0.00049999, "0"},
		"the first digit decides":      {2.00149999999, "2001m"},
		"tenths":                       {0.1, "100m"},
		"a sum of tenths":              {0.1 + 0.2, "300m"},
		"negative":                     {-1.5, "-1500m"},
		"thousands":                    {1000, "1k"},
		"millions and a bit":           {1234567.891, "1234567891m"},
		"a gigabyte":                   {1 << 30, "1073741824"},
		"tiny":                         {5e-324, "0"},
		"the largest":                  {9.223372036854774e15, "9223372036854774"},
		"the largest whose text fits":  {9.2e15, "9200T"},
		"too large":                    {9.223372036854776e15, ""},
		"much too large":               {1e300, ""},
		"largest float":                {math.MaxFloat64, ""},
		"much too small":               {-1e300, ""},
		"more than 64 bits as a whole": {1 << 63, ""},
		"NaN":                          {math.NaN(), ""},
		"infinite":                     {math.Inf(1), ""},
		"infinite below":               {math.Inf(-1), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			q, ok := quantity(test.value)
			got := ""
			if ok {
				got = q.String()
			}
			if got != test.want {
				t.Errorf("%g is %q, not %q", test.value, got, test.want)
			}
		})
	}
}

// FuzzQuantity holds the conversion against decimal arithmetic of any size.
func FuzzQuantity(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 0.1, 0.0005, -0.0005, 1.0005, 123.4565, 1e15, 9.223372036854775e15, 9.223372036854776e15,
		1e300, 5e-324, math.MaxFloat64, math.Inf(1), math.NaN(), 4503599627370496.5, 0.00049999999999999999} {
		f.Add(math.Float64bits(v))
	}
	f.Fuzz(func(t *testing.T, of uint64) {
		value := math.Float64frombits(of)
		q, ok := quantity(value)
		want, fits := milliOfText(value)
		if ok != fits {
			t.Fatalf("%g: %v", value, ok)
		}
		if !ok {
			if reason, message := omitReason(value); reason == "" || message == "" {
				t.Errorf("no reason why %g has no quantity", value)
			}
			return
		}
		if got := q.MilliValue(); got != want {
			t.Errorf("%g is %d thousandths, not %d", value, got, want)
		}
		if again, err := resource.ParseQuantity(q.String()); err != nil || again.Cmp(q) != 0 || again.MilliValue() != want {
			t.Errorf("%g is written as %q, which is read as %v, %v", value, q.String(), again.MilliValue(), err)
		}
	})
}

// milliOfText rounds a value's shortest text to thousandths, half away from zero.
func milliOfText(value float64) (int64, bool) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return 0, false
	}
	text := strconv.FormatFloat(math.Abs(value), 'f', -1, 64)
	exact, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, false
	}
	// floor(1000·v + 1/2)
	exact.Mul(exact, big.NewRat(1000, 1)).Add(exact, big.NewRat(1, 2))
	milli := new(big.Int).Quo(exact.Num(), exact.Denom())
	if value < 0 {
		milli.Neg(milli)
	}
	return milli.Int64(), milli.IsInt64()
}

func BenchmarkQuantity(b *testing.B) {
	values := []float64{0, 1, 0.25, 123.456789, 1e9, 17179869184, 3.3333333333333335}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := quantity(values[i%len(values)]); !ok {
			b.Fatal("no quantity")
		}
	}
}
