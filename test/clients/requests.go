// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// Request is what a client asked, and what it was told.
type Request struct {
	// Client is the kind of client, Version the one it asked for.
	Client, Version string
	Path            string
	Began, Ended    time.Time
	// Code is the status; 0: there was no answer.
	Code int
	// Text is the error, or the beginning of a body that is none of metrics.
	Text string
}

// paths are asked in turn; they are the same in both versions.
var paths = []string{"/nodes", "/pods", "/namespaces/default/pods", "/nodes?limit=1"}

// ask asks as one client, without retries, until ctx ends.
func (c *Clients) ask(ctx context.Context, client *http.Client, kind string, version func() string, period, offset time.Duration) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(offset):
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		request := Request{Client: kind, Version: version(), Began: time.Now()}
		request.Path = "/apis/" + group + "/" + request.Version + paths[i%len(paths)]
		// Not with ctx: a request that began is waited for, or its loss would go unseen.
		request.Code, request.Text = get(context.WithoutCancel(ctx), client, c.options.Config.Host+request.Path)
		request.Ended = time.Now()
		c.mu.Lock()
		c.requests = append(c.requests, request)
		c.mu.Unlock()
	}
}

func get(ctx context.Context, client *http.Client, url string) (int, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		// Cut off in the middle: for the client that is no answer.
		return 0, err.Error()
	case response.StatusCode != http.StatusOK:
		return response.StatusCode, strings.TrimSpace(string(body[:min(len(body), 200)]))
	}
	return response.StatusCode, ""
}
