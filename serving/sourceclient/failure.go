// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// MaxMessage limits the bytes of a failure's message.
const MaxMessage = 400

// ErrTimeout is the cause of a context canceled by the source's timeout.
var ErrTimeout = errors.New("timeout of the source")

// FailureOf returns an error of a connection, or without one, as a Failure of the source, truncated and redacted.
func FailureOf(source string, n *Connection, err error) *query.Failure {
	var f *query.Failure
	if !errors.As(err, &f) {
		f = query.Failf(query.ReasonMalformed, "%s", err)
	}
	var c *credentials
	if n != nil {
		c = n.credentials
	}
	return &query.Failure{Source: source, Reason: f.Reason, Message: text.Line(c.redact(f.Message), MaxMessage), Unparsable: f.Unparsable, RetryAfter: f.RetryAfter, Status: f.Status}
}

// remoteAlert is the operation in the error of crypto/tls for an alert of the server.
const remoteAlert = "remote error"

// Classify returns the Failure for an error of a request, or of reading its response.
func Classify(ctx context.Context, err error) *query.Failure {
	if request, ok := errors.AsType[*url.Error](err); ok {
		// Its message contains the URL with the whole query.
		err = request.Err
	}
	var (
		verify   *tls.CertificateVerificationError
		host     x509.HostnameError
		unknown  x509.UnknownAuthorityError
		notTLS   tls.RecordHeaderError
		network  *net.OpError
		timeouts net.Error
	)
	if errors.As(err, &network) {
		// Without our own port, so that the message is the same each time and the status is
		// not rewritten.
		err = &net.OpError{Op: network.Op, Net: network.Net, Addr: network.Addr, Err: network.Err}
	}
	switch {
	case errors.Is(context.Cause(ctx), ErrTimeout), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return query.Failf(query.ReasonTimeout, "no complete answer in time: make the query cheaper, or raise the source's timeout")
	case ctx.Err() != nil:
		return query.Failf(query.ReasonTimeout, "given up before there was a complete answer")
	case errors.As(err, &host):
		return query.Failf(query.ReasonCertificateUntrusted, "the server's certificate is for another name: set tls.serverName to one that is in it: %s", host)
	case errors.As(err, &unknown):
		return query.Failf(query.ReasonCertificateUntrusted, "the server's certificate is not signed by an authority that is trusted here: give its authority in tls.caSecretKeyRef or tls.caConfigMapKeyRef: %s", unknown)
	case errors.As(err, &verify):
		return query.Failf(query.ReasonCertificateUntrusted, "the server's certificate is not valid: %s", verify.Err)
	case network != nil && network.Op == remoteAlert:
		return query.Failf(query.ReasonConnectionFailed, "the server refused the TLS connection (does it want a client certificate?): %s", err)
	case errors.As(err, &notTLS), errors.Is(err, http.ErrSchemeMismatch):
		return query.Failf(query.ReasonConnectionFailed, "what answers does not speak TLS: check the URL's scheme and port")
	case errors.As(err, &timeouts) && timeouts.Timeout():
		return query.Failf(query.ReasonTimeout, "no connection in time: check that the server runs, and that nothing such as a network policy drops packets to it: %s", err)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return query.Failf(query.ReasonMalformed, "the answer is not compressed as it says: %s", err)
	}
	return query.Failf(query.ReasonConnectionFailed, "no connection, or it broke: %s", err)
}

// Location returns the target of a redirect, without credentials and query.
func Location(resp *http.Response) string {
	u, err := resp.Location()
	if err != nil {
		return "nowhere"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// maxRetryAfter limits the time of a Retry-After.
const maxRetryAfter = time.Minute

// RetryAfter returns the time of a Retry-After header; zero if there is none.
func RetryAfter(code int, h http.Header, now time.Time) time.Duration {
	if code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable {
		return 0
	}
	given := h.Get("Retry-After")
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(given, 10, 31); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(given); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// Readable returns the readable part of a body, which may be HTML.
func Readable(h http.Header, text string) string {
	if strings.Contains(h.Get("Content-Type"), "html") || strings.HasPrefix(strings.TrimSpace(text), "<") {
		if title, ok := between(text, "<title>", "</title>"); ok {
			return title
		}
		if heading, ok := between(text, "<h1>", "</h1>"); ok {
			return heading
		}
		return "(HTML)"
	}
	return text
}

func between(text, begin, end string) (string, bool) {
	_, rest, ok := strings.Cut(text, begin)
	if !ok {
		return "", false
	}
	inner, _, ok := strings.Cut(rest, end)
	return inner, ok
}
