// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"
)

// TestAvailability: an empty list is never served for lack of data.
func TestAvailability(t *testing.T) {
	type step struct {
		collect string // "on", "off", or "" for no change
		after   time.Duration
		rates   bool
		// want is part of the error, or empty.
		want string
	}
	const off, unknown = "spec.resourceMetrics of the MetricsBackend is not set", "not known yet: 0 of 3 nodes"
	for name, steps := range map[string][]step{
		"never collected":            {{want: off}, {after: time.Hour, rates: true, want: off}},
		"from the start":             {{collect: "on", want: unknown}, {rates: true}, {}},
		"nodes that never answer":    {{collect: "on", want: unknown}, {after: 89 * time.Second, want: unknown}, {after: time.Second}, {}},
		"the same settings again":    {{collect: "on", want: unknown}, {collect: "on", after: 90 * time.Second}},
		"no longer":                  {{collect: "on", rates: true}, {collect: "off", rates: true, want: off}},
		"no longer, and again":       {{collect: "on", rates: true}, {collect: "off", want: off}, {after: time.Hour, collect: "on", want: unknown}, {rates: true}},
		"rates are lost: still true": {{collect: "on", rates: true}, {collect: "on"}},
	} {
		t.Run(name, func(t *testing.T) {
			clock, rates := testingclock.NewFakePassiveClock(time.Unix(0, 0)), false
			a := &availability{clock: clock, timeout: 90 * time.Second, hasRates: func() (bool, string) { return rates, "0 of 3 nodes" }}
			for i, s := range steps {
				clock.SetTime(clock.Now().Add(s.after))
				rates = s.rates
				if s.collect != "" {
					a.collect(s.collect == "on")
				}
				switch err := a.check(); {
				case s.want == "" && err != nil:
					t.Errorf("step %d: %v", i, err)
				case s.want != "" && (!apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), s.want)):
					t.Errorf("step %d: %v, want 503 with %q", i, err, s.want)
				}
			}
		})
	}
}
