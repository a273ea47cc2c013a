// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"time"
)

// maxHeader bounds the header of a response, with those of 1xx responses before it.
const maxHeader = 64 << 10

// attempt is one scrape's use of its node's connection. It is in the context of the
// request, so that the request passes the round trippers that add the credentials.
//
// It is not an http.Transport, whose two goroutines for each connection and timer for
// each request cost more CPU than the rest of a scrape.
type attempt struct {
	connection *connection
	settings   *kubeletTLS
	// host is the address in the request, without brackets, to verify the certificate, and node its node.
	host string
	node *Node
	// connectBy is until when to connect to the host.
	connectBy time.Time
	// deadline is by the clock of the kernel's timers, which is not Source.clock.
	deadline time.Time
	// reuse: the connection is to be kept.
	reuse bool
	*workspace
}

type attemptKey struct{}

// attemptTransport sends a request over the connection of its attempt.
type attemptTransport struct{}

func (attemptTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	a, ok := r.Context().Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, errors.New("request without a connection")
	}
	return a.roundTrip(r)
}

// roundTrip sends a request and returns the response, whose body must be closed. The
// connection is kept if the body was read to its end.
func (a *attempt) roundTrip(r *http.Request) (*http.Response, error) {
	if conn := a.connection.take(a.settings, r.URL.Host, a.deadline); conn != nil {
		conn.record.buffer = a.input[:]
		response, answered, err := a.exchange(conn, r)
		// A kubelet closes idle connections, maybe just now.
		if err == nil || answered || errors.Is(err, os.ErrDeadlineExceeded) || r.Context().Err() != nil {
			return response, err
		}
	}
	conn, err := a.connection.dial(r.Context(), a, r.URL.Host)
	if err != nil {
		return nil, err
	}
	response, _, err := a.exchange(conn, r)
	return response, err
}

// exchange sends a request over a connection and returns the response. After an error
// the connection is closed, and answered reports whether the peer had sent anything.
func (a *attempt) exchange(conn *tlsConn, r *http.Request) (response *http.Response, answered bool, err error) {
	stop := context.AfterFunc(r.Context(), func() { _ = conn.Close() })
	limited := &io.LimitedReader{R: conn, N: maxHeader}
	a.conn = conn
	defer func() {
		if err != nil {
			stop()
			_ = conn.Close()
		}
	}()
	a.writer.Reset(conn)
	err = r.Write(a.writer)
	if err == nil {
		err = a.writer.Flush()
	}
	if err != nil {
		return nil, false, fmt.Errorf("send the request: %w", err)
	}
	a.reader.Reset(limited)
	for response == nil || response.StatusCode/100 == 1 && response.StatusCode != http.StatusSwitchingProtocols {
		if response, err = http.ReadResponse(a.reader, r); err != nil {
			return nil, limited.N < maxHeader, responseError(err, limited.N <= 0)
		}
	}
	limited.N = math.MaxInt64
	response.Body = &responseBody{ReadCloser: response.Body, attempt: a, conn: conn, stop: stop, reusable: !response.Close && a.reuse}
	return response, true, nil
}

// protocolError is the error of an answer that is not a response.
type protocolError struct{ error }

// responseError returns the error of http.ReadResponse, with its cause.
func responseError(err error, tooLong bool) error {
	switch {
	case tooLong:
		return protocolError{fmt.Errorf("the header is longer than %d bytes", maxHeader)}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), is[net.Error](err):
		return err
	}
	return protocolError{err}
}

// responseBody is a body whose Close closes the connection unless it can be used again.
type responseBody struct {
	io.ReadCloser
	attempt *attempt
	conn    *tlsConn
	// stop ends the cancellation by the request's context.
	stop func() bool
	// reusable: the peer keeps the connection open. complete: the body was read.
	reusable, complete bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.complete = b.complete || errors.Is(err, io.EOF)
	return n, err
}

// Close does not read the rest of the body, as that of http.ReadResponse would.
func (b *responseBody) Close() error {
	canceled := !b.stop()
	empty := b.conn.record.releaseBuffer() && b.attempt.reader.Buffered() == 0
	if canceled || !b.reusable || !b.complete || !empty || !b.conn.isDrained() {
		return b.conn.Close()
	}
	b.attempt.connection.keep(b.conn)
	return nil
}
