// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"time"
)

// Get has a handler answer a request whose target (path and query) and Accept header may
// be anything. A watch ends with its first events. It returns false for what net/http
// would refuse before any handler.
func Get(ctx context.Context, handler http.Handler, target, accept string) (*httptest.ResponseRecorder, bool) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	request.URL, request.RequestURI = u, target
	request.Header.Set("Accept", accept)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(&firstEvents{recorder, cancel}, request)
	return recorder, true
}

// withoutEvents is when a watch ends that has none: long after those that it has.
const withoutEvents = 50 * time.Millisecond

// firstEvents ends a watch when it has sent something. Nothing but streams is flushed.
type firstEvents struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

// Flush implements http.Flusher.
func (w *firstEvents) Flush() {
	w.ResponseRecorder.Flush()
	if w.Body.Len() > 0 {
		w.end()
		return
	}
	time.AfterFunc(withoutEvents, w.end)
}

// CloseNotify is what the API server knows the ResponseWriter of a server by.
func (*firstEvents) CloseNotify() <-chan bool { return nil }
