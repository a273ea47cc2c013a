// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"time"
)

// Duration returns the interval, or otherwise where there is none. Its error says
// which durations there can be; it is the rule's, never that of the whole spec.
func (i RuleInterval) Duration(otherwise time.Duration) (time.Duration, error) {
	if i == "" {
		return otherwise, nil
	}
	interval, err := time.ParseDuration(string(i))
	if err != nil || interval < MinInterval || interval > MaxInterval {
		return 0, fmt.Errorf("interval %q must be a duration such as 30s, between %s and %s", i, MinInterval, MaxInterval)
	}
	return interval, nil
}

// Known tells whether there is such a policy; the empty one is DuplicatesReject.
func (p DuplicatesPolicy) Known() bool {
	switch p {
	case "", DuplicatesReject, DuplicatesSum, DuplicatesAverage, DuplicatesMinimum, DuplicatesMaximum:
		return true
	}
	return false
}
