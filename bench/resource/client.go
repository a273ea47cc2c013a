// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/streams"
)

// user of all requests. The server authorizes it by asking kube-apiserver, and keeps the
// answer for some seconds.
const user = "load:reader"

// userAgent is none of those for which API servers pretty-print: browsers, curl and wget.
const userAgent = "bench-resource"

// client sends one request at a time on one HTTP/2 connection, like kube-apiserver's
// aggregator.
type client struct {
	server     *cluster.Server
	connection *streams.Connection
}

func connect(ctx context.Context, server *cluster.Server) (*client, error) {
	connection, err := streams.Dial(ctx, server.Address, server.TLS)
	if err != nil {
		return nil, err
	}
	return &client{server: server, connection: connection}, nil
}

func (c *client) close() { c.connection.Close() }

// response is what a client knows after it has read a whole body.
type response struct {
	sent time.Time
	took time.Duration
	// size of the body in bytes; body only if it was kept.
	size int64
	body []byte
}

// get sends a request and reads the body to its end. The body is discarded unless keep is set.
func (c *client) get(ctx context.Context, path string, header []string, keep bool) (*response, error) {
	x := &exchange{keep: keep, done: make(chan struct{}), response: response{sent: time.Now()}}
	fields := append(cluster.Header(user, false), "user-agent", userAgent)
	if err := c.connection.Get(path, append(fields, header...), x); err != nil {
		return nil, fmt.Errorf("request %s: %w", path, err)
	}
	select {
	case <-x.done:
	case <-c.server.Ended():
		return nil, fmt.Errorf("request %s: %w", path, c.server.Err())
	case <-ctx.Done():
		return nil, fmt.Errorf("request %s: %w", path, context.Cause(ctx))
	}
	switch {
	case x.err != nil:
		return nil, fmt.Errorf("read the response to %s: %w", path, x.err)
	case x.status != http.StatusOK:
		return nil, fmt.Errorf("%s answers with status %d", path, x.status)
	}
	return &x.response, nil
}

// exchange is one request. It is a streams.Handler.
type exchange struct {
	keep     bool
	status   int
	err      error
	done     chan struct{}
	response response
}

func (x *exchange) Head(status int, _ time.Time) { x.status = status }

func (x *exchange) Body(piece []byte, _ time.Time) {
	x.response.size += int64(len(piece))
	if x.keep {
		x.response.body = append(x.response.body, piece...)
	}
}

func (x *exchange) End(err error, at time.Time) {
	x.err = err
	x.response.took = at.Sub(x.response.sent)
	close(x.done)
}
