// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// Some 80 frames of filters and handlers are called for a request. The runtime would double the stack of the goroutine
// several times for them, and adjust all frames each time, which took a seventh of the CPU of small requests.

// withRequestStack grows the stack of the connection's goroutine for a request. It belongs outside of all other handlers.
func withRequestStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack(0)
		next.ServeHTTP(w, r)
	})
}

// authenticatorWithRequestStack grows that of the goroutine of requests other than watches: they are served in one of their own,
// for their timeout, and authentication is called early in it.
func authenticatorWithRequestStack(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		growStack(0)
		return next.AuthenticateRequest(r)
	})
}

// growStack, called with 0, reserves a frame of 16 KiB without writing to it, which makes the stack 32 KiB large. Requests
// use about 15.
//
//go:noinline
func growStack(i int) byte { //nolint:unparam // without a result the frame would be optimized away
	if i == 0 {
		return 0
	}
	var frame [16 << 10]byte
	return frame[i]
}
