// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingclient asks single serving pods what they serve and how their sources
// are, at the pod's own address: a Service would answer for any of them.
package servingclient

import (
	"cmp"
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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	build "k8s.io/component-base/version"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// requestTimeout bounds one request, connection included.
	requestTimeout = 5 * time.Second
	// maxBody bounds an answer: a pod that was taken over must not fill the
	// operator's memory.
	maxBody = 1 << 20
)

// ErrUnauthorized means that a pod does not accept the token.
var ErrUnauthorized = errors.New("answered 401 Unauthorized: it, or kube-apiserver for it, does not accept the operator's token")

// Dial opens a connection to a pod.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Pod is how one serving pod is reached and verified.
type Pod struct {
	// Address is the pod's IP and port.
	Address string
	// ServerName is the name that its certificate must be for.
	ServerName string
	// CABundle is PEM: the authorities that may have signed it.
	CABundle []byte
	// InsecureSkipTLSVerify verifies nothing: whoever answers learns the token.
	InsecureSkipTLSVerify bool
	// DiscoveryOnly asks for versions alone: what answers is no serving pod of ours.
	DiscoveryOnly bool
	// Token is sent as bearer token.
	Token string
}

// Answer is what a pod said.
type Answer struct {
	// Serves holds each version that was asked for: whether it is in the pod's
	// discovery, and its requests do not end in 404.
	Serves map[schema.GroupVersion]bool
	// Failing tells of versions that are served why a request of theirs got no
	// answer all the same. It may be for the moment.
	Failing map[schema.GroupVersion]string
	// Sources is nil when the pod has no such report.
	Sources *v1alpha1.SourceReport
	// Consumers is nil when the pod has no such report, or when asking for it
	// failed: then ConsumersError says why. With an error of Ask it was not asked for.
	Consumers      *v1alpha1.ConsumerReport
	ConsumersError error
	// Chain is the certificate that the pod serves, and its intermediates.
	Chain []*x509.Certificate
}

// Client asks pods. It keeps no connections.
type Client struct {
	dial Dial
}

// NewClient returns a Client that connects with dial, or directly when it is nil.
func NewClient(dial Dial) *Client {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Client{dial: dial}
}

// Ask asks a pod for each of the versions, in its discovery and with a request,
// and for its reports. With an error the answer is nil, or what was answered until
// then.
func (c *Client) Ask(ctx context.Context, pod Pod, versions []schema.GroupVersion) (*Answer, error) {
	request, err := c.open(pod)
	if err != nil {
		return nil, err
	}
	defer request.http.CloseIdleConnections()

	answer := &Answer{Serves: map[schema.GroupVersion]bool{}}
	for _, version := range versions {
		serves, err := request.serves(ctx, version)
		switch {
		case err == nil:
			answer.Serves[version] = serves
		case listsMetrics(version.Group) && !pod.DiscoveryOnly && failure(err):
			// Its discovery is its request: it fails by itself, and not the pod.
			answer.fail(version, err)
		default:
			return nil, err
		}
	}
	if pod.DiscoveryOnly {
		return answer, nil
	}
	untold := request.tryAll(ctx, answer)
	answer.Sources, err = request.sources(ctx)
	answer.Chain = request.chain
	if untold != nil || err != nil {
		return answer, cmp.Or(untold, err)
	}
	answer.Consumers, answer.ConsumersError = request.consumers(ctx)
	return answer, nil
}

// open returns a session with a pod, whose idle connections the caller closes.
func (c *Client) open(pod Pod) (*session, error) {
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
		// A pod's address is in no proxy's reach.
		Proxy: nil,
	}
	return &session{
		http: &http.Client{Transport: transport, Timeout: requestTimeout, CheckRedirect: refuseRedirect},
		pod:  pod, limit: maxBody,
	}, nil
}

// fail notes that a version is served, and why a request of it got no answer.
func (a *Answer) fail(version schema.GroupVersion, err error) {
	a.Serves[version] = true
	if a.Failing == nil {
		a.Failing = map[schema.GroupVersion]string{}
	}
	a.Failing[version] = err.Error()
}

// refuseRedirect keeps the token on this connection.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

type session struct {
	http *http.Client
	pod  Pod
	// limit bounds the body of a JSON answer, in bytes.
	limit int64
	// chain is what the pod showed at the last request.
	chain []*x509.Certificate
}

// serves tells whether discovery of the version lists any resource, or, where a group
// lists the metrics of the moment, whether there is discovery of it at all.
func (s *session) serves(ctx context.Context, version schema.GroupVersion) (bool, error) {
	if listsMetrics(version.Group) {
		return s.discovers(ctx, version)
	}
	var resources metav1.APIResourceList
	found, err := s.get(ctx, "/apis/"+version.String(), &resources)
	return found && resources.GroupVersion == version.String() && len(resources.APIResources) > 0, err
}

func (s *session) sources(ctx context.Context) (*v1alpha1.SourceReport, error) {
	var report v1alpha1.SourceReport
	found, err := s.get(ctx, v1alpha1.SourcesPath, &report)
	if err != nil || !found {
		return nil, err
	}
	return &report, nil
}

// get reads JSON from path; false when there is no such path.
func (s *session) get(ctx context.Context, path string, into any) (bool, error) {
	answer, found, err := s.open(ctx, path, "")
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = answer.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer, s.limit+1))
	if err != nil {
		return false, fmt.Errorf("read the answer to %s: %w", path, stable(err))
	}
	if int64(len(body)) > s.limit {
		return false, fmt.Errorf("read the answer to %s: longer than %d bytes", path, s.limit)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return false, fmt.Errorf("read the answer to %s: %w", path, err)
	}
	return true, nil
}

// open returns the body of the answer to path; false when there is no such path.
func (s *session) open(ctx context.Context, path, query string) (io.ReadCloser, bool, error) {
	target := url.URL{Scheme: "https", Host: s.pod.Address, Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", path, err)
	}
	// The pod does not count the operator among its clients.
	request.Header.Set("User-Agent", v1alpha1.OperatorUserAgent+"/"+build.Get().GitVersion)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Authorization", "Bearer "+s.pod.Token)
	response, err := s.http.Do(request)
	if err != nil {
		return nil, false, fmt.Errorf("ask %s: %w", path, stable(err))
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

// statusError is an answer of neither 200 nor 404.
type statusError struct {
	code   int
	status string
}

// Error implements error.
func (e *statusError) Error() string { return "answered " + e.status }

// errTimeout is a request that took longer than requestTimeout.
var errTimeout = fmt.Errorf("no answer within %s", requestTimeout)

// stable takes out of an error what differs between two equal failures, since it
// ends in a condition: the URL, which says nothing new, and the local port.
func stable(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errTimeout
	}
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return &UntrustedError{Chain: unverified.UnverifiedCertificates, Reason: unverifiedReason(unverified.Err)}
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	var address *url.Error
	if errors.As(err, &address) {
		return address.Err
	}
	return err
}
