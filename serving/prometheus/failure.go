// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// maxMessage limits the bytes of a failure's message.
const maxMessage = 400

// errTimeout is the cause of a context canceled by the source's timeout.
var errTimeout = errors.New("timeout of the source")

func failf(reason query.Reason, format string, args ...any) *query.Failure {
	return &query.Failure{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// failureOf returns an error as a Failure of the source, truncated and redacted.
func failureOf(source string, c *credentials, err error) *query.Failure {
	var f *query.Failure
	if !errors.As(err, &f) {
		f = failf(query.ReasonMalformed, "%s", err)
	}
	return &query.Failure{Source: source, Reason: f.Reason, Message: text.Line(c.redact(f.Message), maxMessage), Unparsable: f.Unparsable, RetryAfter: f.RetryAfter}
}

// remoteAlert is the operation in the error of crypto/tls for an alert of the server.
const remoteAlert = "remote error"

// classify returns the Failure for an error of a request, or of reading its response.
func classify(ctx context.Context, err error) *query.Failure {
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
	case errors.Is(context.Cause(ctx), errTimeout), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failf(query.ReasonTimeout, "no complete answer in time: make the query cheaper, or raise the source's timeout")
	case ctx.Err() != nil:
		return failf(query.ReasonTimeout, "given up before there was a complete answer")
	case errors.As(err, &host):
		return failf(query.ReasonCertificateUntrusted, "the server's certificate is for another name: set tls.serverName to one that is in it: %s", host)
	case errors.As(err, &unknown):
		return failf(query.ReasonCertificateUntrusted, "the server's certificate is not signed by an authority that is trusted here: give its authority in tls.ca or tls.caConfigMap: %s", unknown)
	case errors.As(err, &verify):
		return failf(query.ReasonCertificateUntrusted, "the server's certificate is not valid: %s", verify.Err)
	case network != nil && network.Op == remoteAlert:
		return failf(query.ReasonConnectionFailed, "the server refused the TLS connection (does it want a client certificate?): %s", err)
	case errors.As(err, &notTLS), errors.Is(err, http.ErrSchemeMismatch):
		return failf(query.ReasonConnectionFailed, "what answers does not speak TLS: check the URL's scheme and port")
	case errors.As(err, &timeouts) && timeouts.Timeout():
		return failf(query.ReasonTimeout, "no connection in time: check that the server runs, and that nothing such as a network policy drops packets to it: %s", err)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return failf(query.ReasonMalformed, "the answer is not compressed as it says: %s", err)
	}
	return failf(query.ReasonConnectionFailed, "no connection, or it broke: %s", err)
}

// errorResponse is an error of Prometheus.
type errorResponse struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	// Message is that of some gateways.
	Message string `json:"message"`
}

// classifyStatus returns the Failure for a response with another status than 200.
func classifyStatus(resp *http.Response, c *credentials, now time.Time) *query.Failure {
	code := resp.StatusCode
	if code >= 300 && code < 400 {
		return failf(query.ReasonBadStatus, "HTTP %d: redirects are not followed, as they would show credentials to someone else; set the source's url to what it names: %s", code, location(resp))
	}
	body := c.excerpt(resp.Body)
	var parsed errorResponse
	text := ""
	if json.Unmarshal([]byte(body), &parsed) == nil {
		text = cmp.Or(parsed.Error, parsed.Message)
	}
	text = cmp.Or(text, readable(resp.Header, body))
	message := fmt.Sprintf("HTTP %d", code)
	if text != "" {
		message += ": " + text
	}
	wait := retryAfter(code, resp.Header, now)
	switch {
	case code == http.StatusTooManyRequests:
		message += " (the server limits its clients: raise the limit there, or ask less: longer intervals, or fewer metrics)"
		return &query.Failure{Reason: query.ReasonRateLimited, Message: message, RetryAfter: wait}
	case wait > 0:
		message += " (the server is overloaded: give it more capacity, or ask less)"
		return &query.Failure{Reason: query.ReasonRateLimited, Message: message, RetryAfter: wait}
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return failf(query.ReasonUnauthorized, "%s (check authentication and headers of the source)", message)
	case parsed.Status == "error" && parsed.ErrorType == "timeout":
		return failf(query.ReasonTimeout, "%s", text)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		if parsed.Error != "" {
			// Prometheus' own message needs no status.
			message = withoutQuery(parsed.Error)
		}
		return rejected(parsed.ErrorType, message)
	case code == http.StatusNotFound:
		return failf(query.ReasonBadStatus, "%s (check that the source's url ends before /api/v1)", message)
	case code == http.StatusRequestURITooLong:
		return failf(query.ReasonBadStatus, "%s (the server takes no POST, and the query is too long for a URL)", message)
	}
	return failf(query.ReasonBadStatus, "%s", message)
}

// classifyAPIError returns the Failure for an error in a response with status 200.
func classifyAPIError(errorType, message string) *query.Failure {
	switch errorType {
	case "timeout":
		return failf(query.ReasonTimeout, "%s", message)
	case errorBadData, "execution":
		return rejected(errorType, message)
	}
	return failf(query.ReasonBadStatus, "%s: %s", errorType, message)
}

// errorBadData is Prometheus' type of errors in parameters, such as a query that it cannot parse.
const errorBadData = "bad_data"

func rejected(errorType, message string) *query.Failure {
	f := failf(query.ReasonRejected, "%s", message)
	// VictoriaMetrics has only one type of errors, and this error for a label that it cannot parse.
	f.Unparsable = errorType == errorBadData || strings.HasPrefix(message, "labelFilterExpr: unexpected token")
	return f
}

// repeatedQuery is how messages of VictoriaMetrics begin.
var repeatedQuery = regexp.MustCompile(`^error when executing query="(?:[^"\\]|\\.)*" for \(time=\d+, step=\d+\): `)

// withoutQuery removes the query, and the time, that VictoriaMetrics repeats before its error. A long
// query would leave no room for the error, and the time would make it another one each time.
func withoutQuery(message string) string { return repeatedQuery.ReplaceAllString(message, "") }

// classifyNotJSON returns the Failure for a response that is not JSON.
func classifyNotJSON(resp *http.Response, c *credentials) *query.Failure {
	return failf(query.ReasonMalformed, "the answer is %s, not JSON; check that the source's url ends before /api/v1, and that no login page stands before the server: %s",
		resp.Header.Get("Content-Type"), readable(resp.Header, c.excerpt(resp.Body)))
}

// location returns the target of a redirect, without credentials and query.
func location(resp *http.Response) string {
	u, err := resp.Location()
	if err != nil {
		return "nowhere"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// maxRetryAfter limits the time of a Retry-After.
const maxRetryAfter = time.Minute

// retryAfter returns the time of a Retry-After header; zero if there is none.
func retryAfter(code int, h http.Header, now time.Time) time.Duration {
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

// readable returns the readable part of a body, which may be HTML.
func readable(h http.Header, text string) string {
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
