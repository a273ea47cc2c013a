// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

type requestMetadataKey struct{}

// requestMetadata is what the API server does not pass on to a storage.
type requestMetadata struct {
	userAgent, query string
	// info and infoErr are what ResolveOnce returned. Only the connection's goroutine uses them, before the API server
	// starts another for the request.
	info    *request.RequestInfo
	infoErr error

	mu sync.Mutex
	// writer is nil once the handler has returned and must not be used any more.
	writer http.ResponseWriter
}

// WithRequestMetadata stores in the request's context what AbortFrom, UserAgentFrom and
// InitialEventsUnasked return. It must wrap all handlers that replace the ResponseWriter.
func WithRequestMetadata(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := &requestMetadata{userAgent: r.UserAgent(), query: r.URL.RawQuery, writer: w}
		defer m.done()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestMetadataKey{}, m)))
	})
}

// abort breaks the request's connection, or over HTTP/2 its stream: a write to a client that
// does not read blocks even after the request's context is canceled.
func (m *requestMetadata) abort() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.writer == nil {
		return
	}
	// On an error the writer has no deadlines, and the connection ends when the transport gives
	// it up.
	_ = http.NewResponseController(m.writer).SetWriteDeadline(time.Unix(1, 0))
}

func (m *requestMetadata) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writer = nil
}

func requestMetadataFrom(ctx context.Context) (*requestMetadata, bool) {
	m, ok := ctx.Value(requestMetadataKey{}).(*requestMetadata)
	return m, ok
}

// AbortFrom returns a function that breaks the connection of the request, or nil without
// WithRequestMetadata. It may be called at any time; after the response it does nothing.
func AbortFrom(ctx context.Context) func() {
	if m, ok := requestMetadataFrom(ctx); ok {
		return m.abort
	}
	return nil
}

// UserAgentFrom returns the User-Agent of the request, or "" without WithRequestMetadata.
func UserAgentFrom(ctx context.Context) string {
	if m, ok := requestMetadataFrom(ctx); ok {
		return m.userAgent
	}
	return ""
}

// InitialEventsUnasked reports whether the request does not set sendInitialEvents itself. The
// API server sets it for every watch without a resourceVersion (SetListOptionsDefaults in
// k8s.io/apimachinery). Without WithRequestMetadata it returns false.
func InitialEventsUnasked(ctx context.Context) bool {
	m, ok := requestMetadataFrom(ctx)
	if !ok {
		return false
	}
	// Like the API server, ignore malformed parts.
	query, _ := url.ParseQuery(m.query)
	return !query.Has("sendInitialEvents")
}

// ResolveOnce returns a resolver that resolves each request with WithRequestMetadata once: WithRequestMetrics and the API
// server both need what is requested, of which selectors take long to parse.
func ResolveOnce(resolver request.RequestInfoResolver) request.RequestInfoResolver {
	return resolveOnce{resolver}
}

type resolveOnce struct{ request.RequestInfoResolver }

// NewRequestInfo implements request.RequestInfoResolver.
func (o resolveOnce) NewRequestInfo(r *http.Request) (*request.RequestInfo, error) {
	m, ok := requestMetadataFrom(r.Context())
	if !ok {
		return o.RequestInfoResolver.NewRequestInfo(r)
	}
	if m.info == nil && m.infoErr == nil {
		m.info, m.infoErr = o.RequestInfoResolver.NewRequestInfo(r)
	}
	return m.info, m.infoErr
}
