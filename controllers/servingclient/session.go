// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	build "k8s.io/component-base/version"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// ErrUnauthorized means that a pod does not accept the token.
var ErrUnauthorized = errors.New("answered 401 Unauthorized: it, or kube-apiserver for it, does not accept the operator's token")

// errTimeout is a request that took longer than requestTimeout.
var errTimeout = fmt.Errorf("no answer within %s", requestTimeout)

// maxReason bounds the reason of an UntrustedError, in bytes.
const maxReason = 1024

// UntrustedError means that a pod's certificate cannot be verified.
type UntrustedError struct {
	// Chain holds the pod's certificates, leaf first.
	Chain []*x509.Certificate
	// Reason is the same each time for the same failure.
	Reason string
}

// Error implements error.
func (e *UntrustedError) Error() string { return "its certificate cannot be verified: " + e.Reason }

// statusError is a response with a status that is not expected.
type statusError struct {
	code   int
	status string
}

// Error implements error.
func (e *statusError) Error() string { return "answered " + e.status }

// malformedError is a response of another type than was requested.
type malformedError struct {
	path string
	err  error
}

// Error implements error.
func (e *malformedError) Error() string { return "read the answer to " + e.path + ": " + e.err.Error() }

// Unwrap implements errors.Unwrap.
func (e *malformedError) Unwrap() error { return e.err }

// isServerError reports whether the pod was reached and failed to answer.
func isServerError(err error) bool {
	var answered *statusError
	var malformed *malformedError
	return errors.Is(err, errTimeout) || errors.As(err, &malformed) ||
		errors.As(err, &answered) && answered.code >= http.StatusInternalServerError
}

// session sends requests to one pod.
type session struct {
	http *http.Client
	pod  Pod
	// limit bounds the body of a JSON response, in bytes.
	limit int64
	// chain holds the pod's certificates at the last request.
	chain []*x509.Certificate
}

// newSession returns a session with a pod. The caller closes its idle connections.
func (c *Client) newSession(pod Pod, timeout time.Duration, limit int64) (*session, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pod.CABundle) && !pod.InsecureSkipTLSVerify {
		return nil, errors.New("no authority to verify the pod with")
	}
	transport := &http.Transport{
		DialContext: c.dial,
		TLSClientConfig: &tls.Config{
			RootCAs: roots, ServerName: pod.ServerName, MinVersion: tls.VersionTLS12,
			// The user's explicit choice, as kube-apiserver takes it from the APIService.
			InsecureSkipVerify: pod.InsecureSkipTLSVerify, //nolint:gosec // see above
		},
		// A proxy cannot reach a pod's address.
		Proxy: nil,
	}
	// The token must not follow a redirect to another server.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &session{
		http: &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: refuse},
		pod:  pod, limit: limit,
	}, nil
}

// noReport is the error for a report that a pod answers with 404: each serving pod has it.
func noReport(path string) error {
	return fmt.Errorf("ask %s: %w", path, &statusError{http.StatusNotFound, "404 Not Found"})
}

// read is get for a path that must exist.
func (s *session) read(ctx context.Context, path, query string, into any) error {
	found, err := s.get(ctx, path, query, into)
	if err == nil && !found {
		err = noReport(path)
	}
	return err
}

// get decodes the JSON response of path; it returns false when the path does not exist.
func (s *session) get(ctx context.Context, path, query string, into any) (bool, error) {
	response, found, err := s.open(ctx, path, query)
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = response.Close() }()
	body, err := io.ReadAll(io.LimitReader(response, s.limit+1))
	if err != nil {
		return false, fmt.Errorf("read the answer to %s: %w", path, stableError(err))
	}
	if int64(len(body)) > s.limit {
		return false, fmt.Errorf("read the answer to %s: longer than %d bytes", path, s.limit)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return false, fmt.Errorf("read the answer to %s: %w", path, err)
	}
	return true, nil
}

// open returns the response body of path; it returns false when the path does not exist.
func (s *session) open(ctx context.Context, path, query string) (io.ReadCloser, bool, error) {
	target := url.URL{Scheme: "https", Host: s.pod.Address, Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", path, err)
	}
	// The pod leaves requests with this user agent out of its consumers.
	request.Header.Set("User-Agent", v1alpha1.OperatorUserAgent+"/"+build.Get().GitVersion)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+s.pod.Token)
	response, err := s.http.Do(request)
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", path, stableError(err))
	}
	s.chain = response.TLS.PeerCertificates
	if response.StatusCode == http.StatusOK {
		return response.Body, true, nil
	}
	_ = response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotFound:
		return nil, false, nil
	case http.StatusUnauthorized:
		return nil, false, fmt.Errorf("ask %s: %w", path, ErrUnauthorized)
	}
	return nil, false, fmt.Errorf("ask %s: %w", path, &statusError{response.StatusCode, response.Status})
}

// stableError removes from an error what differs between two equal failures, such as the
// local port, since the error ends up in a condition.
func stableError(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errTimeout
	}
	if unverified, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &UntrustedError{Chain: unverified.UnverifiedCertificates, Reason: untrustedReason(unverified.Err)}
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	if address, ok := errors.AsType[*url.Error](err); ok {
		return address.Err
	}
	return err
}

func untrustedReason(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		// The error holds the current time.
		return "it, or its authority, has expired or is not valid yet"
	}
	// The error may hold names from a certificate that anybody made.
	return text.Printable(err.Error(), maxReason)
}
