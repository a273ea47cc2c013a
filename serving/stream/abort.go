// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"net/http"
	"sync"
	"time"
)

// aborter lets what handles a request break the request's connection: a write
// to a client that does not read waits for as long as the client likes, whatever
// becomes of the request's context. Over HTTP/2 only the request's stream is
// reset.
type aborter struct {
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
