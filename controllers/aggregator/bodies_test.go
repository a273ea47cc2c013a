// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Whoever implements an aggregated API chooses how long its answers are, and a few KB of gzip are many MB.
func TestBodiesAreBounded(t *testing.T) {
	requests := map[string]func(context.Context, *Client) error{
		"FreshNodeSample": func(ctx context.Context, c *Client) error { _, err := c.FreshNodeSample(ctx, v1, now); return err },
		"Discovers":       func(ctx context.Context, c *Client) error { return c.Discovers(ctx, v1) },
		"Answers":         func(ctx context.Context, c *Client) error { return c.Answers(ctx, "/apis/"+v1.String()) },
	}
	answers := map[string]struct {
		code int
		zip  bool
	}{
		"gzip":     {code: http.StatusOK, zip: true},
		"an error": {code: http.StatusServiceUnavailable},
	}
	for request, ask := range requests {
		for answer, tc := range answers {
			t.Run(request+"/"+answer, func(t *testing.T) {
				p := newControlPlane(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					to := io.Writer(w)
					if tc.zip && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
						w.Header().Set("Content-Encoding", "gzip")
						zipped := gzip.NewWriter(w)
						defer func() { _ = zipped.Close() }()
						to = zipped
					}
					w.WriteHeader(tc.code)
					_, _ = io.WriteString(to, `{"kind":"NodeMetricsList","groupVersion":"`+v1.String()+`","items":[],"padding":"`)
					for sent, chunk := 0, strings.Repeat("x", 1<<20); sent < 2*maxBody; sent += len(chunk) {
						if _, err := io.WriteString(to, chunk); err != nil {
							return
						}
					}
					_, _ = io.WriteString(to, `"}`)
				})
				if err := ask(t.Context(), p.client(t)); err == nil || !strings.Contains(err.Error(), "more than") {
					t.Errorf("error %.200v", err)
				}
			})
		}
	}
}
