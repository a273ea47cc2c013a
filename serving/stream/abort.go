// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

type abortKey struct{}

// WithAbort lets what handles a request break the request's connection: a write
// to a client that does not read waits for as long as the client likes, whatever
// becomes of the request's context. Over HTTP/2 only the request's stream is
// reset. It also keeps what the API server does not hand on: what the client calls
// itself, and what its query names. It belongs outside of handlers that wrap the
// ResponseWriter.
func WithAbort(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &aborter{
			writer: w, userAgent: r.UserAgent(),
			initialEventsUnasked: !strings.Contains(r.URL.RawQuery, "sendInitialEvents"),
		}
		defer a.done()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), abortKey{}, a)))
	})
}

// AbortFrom returns what breaks the connection of a request that came through
// WithAbort, otherwise nil. It may be called at any time, and does nothing once
// the request is answered.
func AbortFrom(ctx context.Context) func() {
	if a, ok := ctx.Value(abortKey{}).(*aborter); ok {
		return a.abort
	}
	return nil
}

// UserAgentFrom returns the User-Agent of a request that came through WithAbort,
// otherwise the empty string.
func UserAgentFrom(ctx context.Context) string {
	if a, ok := ctx.Value(abortKey{}).(*aborter); ok {
		return a.userAgent
	}
	return ""
}

// InitialEventsUnasked says that a request came through WithAbort and does not name
// sendInitialEvents itself. The API server sets that for every watch without a
// resourceVersion (SetListOptionsDefaults in k8s.io/apimachinery).
func InitialEventsUnasked(ctx context.Context) bool {
	a, ok := ctx.Value(abortKey{}).(*aborter)
	return ok && a.initialEventsUnasked
}

type aborter struct {
	userAgent            string
	initialEventsUnasked bool

	mu sync.Mutex
	// writer is nil once the handler has returned: then it is not to be touched.
	writer http.ResponseWriter
}

func (a *aborter) abort() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.writer == nil {
		return
	}
	// An error means that the writer knows no deadlines, and that the connection
	// ends when the transport gives it up: there is nothing else to try.
	_ = http.NewResponseController(a.writer).SetWriteDeadline(time.Unix(1, 0))
}

func (a *aborter) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writer = nil
}
