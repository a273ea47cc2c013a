// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

// withConnectionClose adds `Connection: close` to every response once shutdown begins. It
// closes an HTTP/1 connection after the response and makes an HTTP/2 server send GOAWAY:
// running requests are answered, and new ones use a new connection, to another pod
// as soon as the endpoints are updated. Otherwise the aggregator keeps its connection to
// this pod, and gets a 503 for requests sent after the server stops to accept them.
func withConnectionClose(handler http.Handler, shuttingDown <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-shuttingDown:
			w.Header().Set("Connection", "close")
		default:
		}
		handler.ServeHTTP(w, r)
	})
}

// drain ends the watches during the shutdown delay, so that clients reconnect to other pods.
//
// In the first quarter of the delay no watch ends: until endpoints are updated, a client
// could reconnect to this pod. In the last quarter clients read the end of their streams.
// After the first quarter new watches are rejected with Retry-After, and the response closes
// the connection (see withConnectionClose).
type drain struct {
	shuttingDown <-chan struct{}
	delay        time.Duration
	clock        clock.Clock
	// open returns the number of open watches, and end ends them within a duration.
	open func() int
	end  func(over time.Duration)
}

func (d *drain) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-d.shuttingDown:
	}
	if !wake.Sleep(ctx, d.clock, d.delay/4) {
		return
	}
	over := d.delay / 2
	if open := d.open(); open > 0 {
		klog.FromContext(ctx).Info("Shutdown ends the open watches; their clients reconnect to other pods", "watches", open, "over", over)
	}
	d.end(over)
}
