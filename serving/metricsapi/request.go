// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/sourceclient"
)

const (
	// maxBody limits an answer, in bytes after decompression: about 20,000 values.
	maxBody = 8 << 20
	// smallBody is the length up to which bodies are read at once; of longer ones maxLarge at a time.
	smallBody = 256 << 10
	maxLarge  = 2
)

// get requests a path and has read decode the body of the answer. It sets warnings to those of the answer, if that is
// not nil. A request is made again once if there is no connection, or it breaks: of several replicas another
// one may answer.
func (s *Source) get(ctx context.Context, path string, read func(body []byte) error, warnings *[]string) *query.Failure {
	n, f := s.client.Connection()
	if f != nil {
		return sourceclient.FailureOf(s.name, nil, f)
	}
	for try := 1; ; try++ {
		f = s.client.Do(ctx, n, timeout, func(ctx context.Context) error { return s.send(ctx, n, path, read, warnings) })
		if f == nil || f.Reason != query.ReasonConnectionFailed || try > 1 || ctx.Err() != nil {
			return f
		}
	}
}

func (s *Source) send(ctx context.Context, n *sourceclient.Connection, path string, read func(body []byte) error, warnings *[]string) error {
	began := s.clock.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.Spec.Endpoint+path, nil)
	if err != nil {
		return query.Failf(query.ReasonInternal, "make a request: %s", err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := n.HTTP.Do(r)
	if err != nil {
		return classify(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusUnauthorized {
		n.Unauthorized(began)
	}
	if resp.StatusCode != http.StatusOK {
		return s.failureOf(resp, n)
	}
	if warnings != nil {
		*warnings = nil // of a try before
		parsed, _ := utilnet.ParseWarningHeaders(resp.Header["Warning"])
		for _, w := range parsed {
			*warnings = append(*warnings, w.Text)
		}
		*warnings = n.Warnings(*warnings)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, smallBody))
	if err == nil && len(body) == smallBody {
		if err := s.large.Acquire(ctx, 1); err != nil {
			return query.Failf(query.ReasonTimeout, "other long answers were read all the time: ask for fewer objects at a time")
		}
		defer s.large.Release(1)
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(resp.Body, maxBody-smallBody+1))
		body = append(body, rest...)
	}
	switch {
	case err != nil:
		return classify(ctx, err)
	case len(body) > maxBody:
		return query.Failf(query.ReasonTooLarge, "the answer is longer than %d bytes, which is the limit: ask for fewer objects at a time", maxBody)
	}
	if err := read(body); err != nil {
		return query.Failf(query.ReasonMalformed, "the answer is not what this API answers: %s: %s", err, sourceclient.Readable(resp.Header, text.Truncate(n.Excerpt(bytes.NewReader(body)), 200)))
	}
	return nil
}

// classify returns the Failure for an error of a request, or of reading its answer.
func classify(ctx context.Context, err error) *query.Failure {
	if f, ok := errors.AsType[*query.Failure](err); ok {
		return f // of Address
	}
	if errors.Is(context.Cause(ctx), sourceclient.ErrTimeout) {
		return query.Failf(query.ReasonTimeout, "no complete answer in %s", timeout)
	}
	return sourceclient.Classify(ctx, err)
}

// failureOf returns the Failure for an answer with another status than 200. An API error is passed on, unless it says
// that the token is refused.
func (s *Source) failureOf(resp *http.Response, n *sourceclient.Connection) *query.Failure {
	code := resp.StatusCode
	if code >= 300 && code < 400 {
		return query.Failf(query.ReasonBadStatus, "HTTP %d: redirects are not followed, as they would show the token to someone else: %s", code, sourceclient.Location(resp))
	}
	body := n.Excerpt(resp.Body)
	status := &metav1.Status{}
	if json.Unmarshal([]byte(body), status) != nil || status.Kind != "Status" || status.Status != metav1.StatusFailure {
		status = nil
	}
	message := fmt.Sprintf("HTTP %d: ", code)
	if status != nil {
		message += status.Message
	} else {
		message += sourceclient.Readable(resp.Header, body)
	}
	f := query.Failf(query.ReasonBadStatus, "%s", message)
	switch {
	case code == http.StatusForbidden && strings.Contains(body, v1alpha1.LeadsBack):
		f.Reason = query.ReasonLoop
	case code == http.StatusUnauthorized, code == http.StatusForbidden && status == nil:
		f.Reason = query.ReasonUnauthorized
	case code == http.StatusTooManyRequests && status == nil: // of the whole server
		f.Reason, f.RetryAfter = query.ReasonRateLimited, sourceclient.RetryAfter(code, resp.Header, s.clock.Now())
	case status == nil:
	case code >= 500:
		f.Reason, f.Status = query.ReasonServerError, status
	case code >= 400:
		f.Reason, f.Status = query.ReasonRejected, status
	}
	if status != nil {
		status.Code = int32(code)
	}
	return f
}
