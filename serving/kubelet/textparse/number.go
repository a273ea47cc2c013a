// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package textparse

import (
	"math"
	"strconv"
	"unsafe"
)

// exactPowers are the powers of ten that a float64 represents exactly.
var exactPowers = [...]float64{
	1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
	1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
}

// parseFloat parses a value of the exposition format. Values out of range are
// infinite. It allocates only for malformed values.
func parseFloat(b []byte) (float64, bool) {
	if v, ok := parseShortFloat(b); ok {
		return v, true
	}
	for _, c := range b {
		switch c {
		case 'p', 'P', 'x', 'X', '_':
			// Valid in Go, but not in the format.
			return 0, false
		}
	}
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(b), len(b)), 64)
	if err != nil && !math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

// parseShortFloat parses decimals whose mantissa and power of ten are both exact,
// so that one operation rounds correctly (Clinger, 1990). Those are most of a
// kubelet's values.
func parseShortFloat(b []byte) (float64, bool) {
	i, negative := 0, false
	if i < len(b) && (b[i] == '+' || b[i] == '-') {
		negative = b[i] == '-'
		i++
	}
	var mantissa uint64
	digits, exponent := 0, 0
	for ; i < len(b) && isDigit(b[i]); i++ {
		mantissa = mantissa*10 + uint64(b[i]-'0')
		digits++
	}
	if i < len(b) && b[i] == '.' {
		for i++; i < len(b) && isDigit(b[i]); i++ {
			mantissa = mantissa*10 + uint64(b[i]-'0')
			digits++
			exponent--
		}
	}
	if digits == 0 || digits > 19 || mantissa > 1<<53 {
		return 0, false
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		e, ok := parseInt(b[i+1:])
		if !ok || e > 400 || e < -400 {
			return 0, false
		}
		exponent += int(e)
		i = len(b)
	}
	if i != len(b) {
		return 0, false
	}
	v := float64(mantissa)
	switch {
	case exponent > 22 || exponent < -22:
		return 0, false
	case exponent < 0:
		v /= exactPowers[-exponent]
	default:
		v *= exactPowers[exponent]
	}
	if negative {
		v = -v
	}
	return v, true
}

// parseInt parses a decimal of at most 18 digits with an optional sign.
func parseInt(b []byte) (int64, bool) {
	i, negative := 0, false
	if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
		negative = b[0] == '-'
		i++
	}
	if i == len(b) || len(b)-i > 18 {
		return 0, false
	}
	var v int64
	for ; i < len(b); i++ {
		if !isDigit(b[i]) {
			return 0, false
		}
		v = v*10 + int64(b[i]-'0')
	}
	if negative {
		v = -v
	}
	return v, true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
