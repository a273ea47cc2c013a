// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

// Some 80 frames of filters and handlers are called for a request. As they are, the runtime would double the stack of
// the goroutine several times, and adjust all frames each time, which took an eighth of the CPU of small requests.

// withRequestStack grows the stack of the connection's goroutine for a request. It belongs outside of all other handlers.
func withRequestStack(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack(0)
		next.ServeHTTP(w, r)
	})
}

// withRequestStackAgain grows that of the goroutine in which the API server serves all requests but watches, within
// their timeout, and in which authentication comes first.
func withRequestStackAgain(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		growStack(0)
		return next.AuthenticateRequest(r)
	})
}

// growStack needs 16 KiB of stack, which makes it 32 KiB large. Requests use about 15.
//
//go:noinline
func growStack(i int) byte {
	var frame [16 << 10]byte
	return frame[i]
}
