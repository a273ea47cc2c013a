// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxQuantity is the largest value of a metric: autoscalers read thousandths into 64
// bits, and resource.Quantity returns 0 for a value that does not fit.
const maxQuantity = float64(math.MaxInt64) / 1000

// quantity returns the quantity of a value: its shortest decimal form, as written by the
// source, rounded to thousandths, half away from zero. It returns false for a value that is
// NaN, infinite, or larger than maxQuantity.
func quantity(value float64) (resource.Quantity, bool) {
	milli, ok := milliValue(value)
	if !ok {
		return resource.Quantity{}, false
	}
	return *resource.NewMilliQuantity(milli, resource.DecimalSI), true
}

// milliValue returns a value in thousandths, rounded.
func milliValue(value float64) (milli int64, ok bool) {
	if math.IsNaN(value) || math.Abs(value) > maxQuantity {
		return 0, false
	}
	// Digits and a decimal exponent: d.ddde±dd.
	var buffer [32]byte
	text := strconv.AppendFloat(buffer[:0], math.Abs(value), 'e', -1, 64)
	var digits uint64
	exponent, i := 0, 0
	for ; text[i] != 'e'; i++ {
		if text[i] == '.' {
			continue
		}
		digits = digits*10 + uint64(text[i]-'0')
		exponent--
	}
	exponent++ // the digit before the point
	written, negative := 0, text[i+1] == '-'
	for _, c := range text[i+2:] {
		written = written*10 + int(c-'0')
	}
	if negative {
		written = -written
	}
	magnitude, ok := scale(digits, exponent+written+3)
	if !ok {
		return 0, false
	}
	if value < 0 {
		return -int64(magnitude), true
	}
	return int64(magnitude), true
}

// scale returns digits times a power of ten, rounded half up. It returns false if that
// overflows int64.
func scale(digits uint64, exponent int) (uint64, bool) {
	for ; exponent > 0 && digits != 0; exponent-- {
		over, product := bits.Mul64(digits, 10)
		if over != 0 {
			return 0, false
		}
		digits = product
	}
	var last uint64
	for ; exponent < 0 && (digits != 0 || last != 0); exponent++ {
		// Only the first digit that is cut off decides.
		digits, last = digits/10, digits%10
	}
	if last >= 5 {
		digits++
	}
	return digits, digits <= math.MaxInt64
}

// omitReason returns why a value has no quantity.
func omitReason(value float64) (OmitReason, string) {
	switch {
	case math.IsNaN(value):
		return OmitReasonNaN, "the value is NaN (not a number, such as 0/0)"
	case math.IsInf(value, 0):
		return OmitReasonInfinite, "the value is infinite"
	}
	return OmitReasonTooLarge, fmt.Sprintf("the value %g is beyond ±%.4g, the largest whose thousandths fit 64 bits, as autoscalers read them", value, maxQuantity)
}
