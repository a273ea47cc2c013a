// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import "time"

// Time is the time of a sample in milliseconds since 1970 UTC, as kubelets and
// Prometheus give it; zero is no time. It takes a third of the memory of a time.Time.
type Time int64

const second Time = 1000

// TimeOf returns t in milliseconds, and zero for the zero time.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMilli())
}

// AsTime returns t as a time.Time, and the zero time for zero.
func (t Time) AsTime() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(t))
}

// Unix returns t in seconds since 1970 UTC.
func (t Time) Unix() int64 { return t.AsTime().Unix() }
