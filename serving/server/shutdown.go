// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
)

// withLeaveOnShutdown tells clients to go elsewhere from the moment at which
// shutdown begins. The aggregator keeps one connection to a pod for as long as
// it works; what it sends in the moment in which the server stops to accept
// requests is answered with 503. `Connection: close` closes a HTTP/1 connection
// after the answer and makes an HTTP/2 server send GOAWAY: requests under way
// are answered, new ones take a new connection, which leads to another pod as
// soon as the endpoints are updated.
func withLeaveOnShutdown(handler http.Handler, shuttingDown <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-shuttingDown:
			w.Header().Set("Connection", "close")
		default:
		}
		handler.ServeHTTP(w, r)
	})
}
