// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
)

// skewTolerated is what a Date header, in whole seconds and as old as the answer's
// way, cannot tell from no skew at all.
const skewTolerated = 3 * time.Second

// dates learns kube-apiserver's time from its answers.
type dates struct {
	clock clock.PassiveClock
	// offset is added to the local time, in nanoseconds.
	offset atomic.Int64
}

func (d *dates) now() time.Time { return d.clock.Now().Add(time.Duration(d.offset.Load())) }

// observe reads the Date header of each answer.
func (d *dates) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if there, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			offset := there.Sub(d.clock.Now())
			if offset.Abs() < skewTolerated {
				offset = 0
			}
			d.offset.Store(int64(offset))
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// isUnknownKind tells whether the cluster has no such API. The path of a list
// exists whatever it holds, so that NotFound speaks of the kind.
func isUnknownKind(err error) bool {
	var noMatch *meta.NoKindMatchError
	return apierrors.IsNotFound(err) || errors.As(err, &noMatch)
}
