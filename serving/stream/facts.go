// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"net/http"
	"net/url"
)

type factsKey struct{}

// facts are what the API server does not hand on of a request.
type facts struct {
	aborter
	userAgent, query string
}

// WithRequestFacts keeps what the API server does not hand on of a request: what
// breaks its connection, what the client calls itself, and what its query names.
// It belongs outside of handlers that wrap the ResponseWriter.
func WithRequestFacts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := &facts{aborter: aborter{writer: w}, userAgent: r.UserAgent(), query: r.URL.RawQuery}
		defer f.done()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), factsKey{}, f)))
	})
}

func factsFrom(ctx context.Context) (*facts, bool) {
	f, ok := ctx.Value(factsKey{}).(*facts)
	return f, ok
}

// AbortFrom returns what breaks the connection of a request that came through
// WithRequestFacts, otherwise nil. It may be called at any time, and does nothing
// once the request is answered.
func AbortFrom(ctx context.Context) func() {
	if f, ok := factsFrom(ctx); ok {
		return f.abort
	}
	return nil
}

// UserAgentFrom returns the User-Agent of a request that came through
// WithRequestFacts, otherwise the empty string.
func UserAgentFrom(ctx context.Context) string {
	if f, ok := factsFrom(ctx); ok {
		return f.userAgent
	}
	return ""
}

// InitialEventsUnasked says that a request came through WithRequestFacts and does
// not name sendInitialEvents itself. The API server sets that for every watch
// without a resourceVersion (SetListOptionsDefaults in k8s.io/apimachinery).
func InitialEventsUnasked(ctx context.Context) bool {
	f, ok := factsFrom(ctx)
	if !ok {
		return false
	}
	// What of it is malformed names nothing, as for the API server.
	named, _ := url.ParseQuery(f.query)
	return !named.Has("sendInitialEvents")
}
