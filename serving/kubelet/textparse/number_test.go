// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package textparse

import (
	"math"
	"testing"
)

func TestParseFloat(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "1": 1, "-1": -1, "+1": 1, "1.5": 1.5, ".5": .5, "5.": 5, "1e3": 1e3, "1E-3": 1e-3, "1e+22": 1e22,
		"1e23": 1e23, "123456789012345678901234567890": 123456789012345678901234567890, "9007199254740993": 9007199254740992,
		"0.1": 0.1, "1.7499990001239e+09": 1.7499990001239e+09, "179769313486231570814527423731704356798070e267": math.MaxFloat64,
		"5e-324": 5e-324, "1e-400": 0, "00000000000000000000001": 1, "Inf": math.Inf(1), "-inf": math.Inf(-1), "1e400": math.Inf(1),
	} {
		if got, ok := parseFloat([]byte(text)); !ok || got != want {
			t.Errorf("parseFloat(%q) = %v, %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", ".", "+", "-", "e5", "1e", "1e+", "1.2.3", "1,5", "0x1p-2", "1_000", " 1", "1 ", "infin", "--1", "1e5.5"} {
		if got, ok := parseFloat([]byte(text)); ok {
			t.Errorf("parseFloat(%q) = %v, want none", text, got)
		}
	}
	if got, ok := parseFloat([]byte("NaN")); !ok || !math.IsNaN(got) {
		t.Errorf("parseFloat(NaN) = %v, %v", got, ok)
	}
}
