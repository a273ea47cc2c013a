// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// skewTolerated is the precision of a Date header, which is in whole seconds and as old as
// the response.
const skewTolerated = 3 * time.Second

// serverClock is kube-apiserver's clock, according to its responses.
type serverClock struct {
	clock clock.PassiveClock
	// offset is added to the local time, in nanoseconds.
	offset atomic.Int64
}

// Now returns kube-apiserver's time, so that a wrong local clock does not make samples old.
func (s *serverClock) Now() time.Time { return s.clock.Now().Add(time.Duration(s.offset.Load())) }

// observe reads the Date header of each response.
func (s *serverClock) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if there, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			offset := there.Sub(s.clock.Now())
			if offset.Abs() < skewTolerated {
				offset = 0
			}
			s.offset.Store(int64(offset))
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
