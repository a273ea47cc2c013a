// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servingclient sends requests to single serving pods, at the pod's own address:
// a Service would forward them to any pod. It reads which API versions a pod serves, and
// its reports.
package servingclient

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/metrics/pkg/apis/custom_metrics"
	"k8s.io/metrics/pkg/apis/external_metrics"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// requestTimeout bounds a request, connection included.
	requestTimeout = 5 * time.Second
	// maxBody bounds a response body, in bytes, so that a compromised pod cannot fill
	// the operator's memory.
	maxBody = 1 << 20
	// maxList bounds a list of all pods, which is read before a takeover alone.
	maxList = 16 << 20
)

// Dial opens a connection to a pod.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Pod says how a serving pod is reached and verified.
type Pod struct {
	// Address is the pod's IP and port.
	Address string
	// ServerName is the name that its certificate must be valid for.
	ServerName string
	// CABundle is PEM: the authorities that may have signed the certificate.
	CABundle []byte
	// InsecureSkipTLSVerify skips the verification: any server at the address gets the token.
	InsecureSkipTLSVerify bool
	// DiscoveryOnly limits Probe to discovery, for servers that are not ours.
	DiscoveryOnly bool
	// Token is the bearer token.
	Token string
}

// Answer is the result of Probe.
type Answer struct {
	// Serves reports for each version whether it is in the pod's discovery and its
	// requests are not answered with 404.
	Serves map[schema.GroupVersion]bool
	// Failing holds the errors of requests for versions that are served. They may be
	// temporary.
	Failing map[schema.GroupVersion]string
	// Sources is nil when Probe failed.
	Sources *v1alpha1.SourceReport
	// Consumers is nil when Probe failed, and when reading the report failed, with the error
	// in ConsumersError.
	Consumers      *v1alpha1.ConsumerReport
	ConsumersError error
	// Chain is the pod's certificate, and its intermediates.
	Chain []*x509.Certificate
}

// Client sends requests to pods. It keeps no connections.
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

// Probe checks each of the versions, in the pod's discovery and with a request, and reads
// the pod's reports. With an error the answer is nil or incomplete.
func (c *Client) Probe(ctx context.Context, pod Pod, versions []schema.GroupVersion) (*Answer, error) {
	s, err := c.newSession(pod, requestTimeout, maxBody)
	if err != nil {
		return nil, err
	}
	defer s.http.CloseIdleConnections()

	answer := &Answer{Serves: map[schema.GroupVersion]bool{}}
	for _, version := range versions {
		serves, err := s.discovers(ctx, version)
		switch {
		case err == nil:
			answer.Serves[version] = serves
		case listsMetrics(version.Group) && !pod.DiscoveryOnly && isServerError(err):
			// Discovery is the only request of these groups: the version fails, not the pod.
			answer.fail(version, err)
		default:
			return nil, err
		}
	}
	if pod.DiscoveryOnly {
		return answer, nil
	}
	probeErr := s.probeVersions(ctx, answer)
	answer.Sources, err = report[v1alpha1.SourceReport](ctx, s, v1alpha1.SourcesPath)
	answer.Chain = s.chain
	if probeErr != nil || err != nil {
		return answer, cmp.Or(probeErr, err)
	}
	// An error here does not fail the pod: consumers only decide how soon a version may be
	// removed.
	answer.Consumers, answer.ConsumersError = report[v1alpha1.ConsumerReport](ctx, s, v1alpha1.ConsumersPath)
	return answer, nil
}

// Read decodes what the pod answers to a GET, up to maxList bytes.
func (c *Client) Read(ctx context.Context, pod Pod, path string, query url.Values, into any) error {
	s, err := c.newSession(pod, requestTimeout, maxList)
	if err != nil {
		return err
	}
	defer s.http.CloseIdleConnections()
	return s.read(ctx, path, query.Encode(), into)
}

// report reads a report from path.
func report[T any](ctx context.Context, s *session, path string) (*T, error) {
	into := new(T)
	if err := s.read(ctx, path, "", into); err != nil {
		return nil, err
	}
	return into, nil
}

// fail records that a version is served and the error of its request.
func (a *Answer) fail(version schema.GroupVersion, err error) {
	a.Serves[version] = true
	if a.Failing == nil {
		a.Failing = map[schema.GroupVersion]string{}
	}
	a.Failing[version] = err.Error()
}

// WithPods adds to a message how many of all serving pods report it, unless all do.
func WithPods(message string, n, all int) string {
	if n >= all {
		return message
	}
	return fmt.Sprintf("%s (as %d of %d serving pods see it)", strings.TrimRight(message, ". "), n, all)
}

// Clamp returns a number that a pod reported within the bounds of a status field.
func Clamp(n int) int32 { return int32(min(max(n, 0), 1<<30)) } //nolint:gosec // bounded

// listsMetrics reports whether discovery of a group lists the metrics that exist. There
// may be none, and each is a query of its own, so that discovery is the only request that
// can be made of such a group.
func listsMetrics(group string) bool {
	return group == custom_metrics.GroupName || group == external_metrics.GroupName
}

// discovers reports whether discovery has the version, with resources unless the group
// lists metrics.
func (s *session) discovers(ctx context.Context, version schema.GroupVersion) (bool, error) {
	path := "/apis/" + version.String()
	if !listsMetrics(version.Group) {
		var resources metav1.APIResourceList
		found, err := s.get(ctx, path, "", &resources)
		return found && resources.GroupVersion == version.String() && len(resources.APIResources) > 0, err
	}
	body, found, err := s.open(ctx, path, "")
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = body.Close() }()
	fields, err := readFields(io.LimitReader(body, maxBody), "groupVersion")
	if err != nil {
		return false, &malformedError{path, err}
	}
	return fields["groupVersion"] == version.String(), nil
}

// probeVersions lists objects of each version that is in discovery, which goes on listing
// a version whose requests fail, and records the results in answer. It returns the first
// error, by version, that is not about the version: the pod cannot be reached any more,
// does not authorize the operator, or is overloaded.
func (s *session) probeVersions(ctx context.Context, answer *Answer) error {
	var first error
	byName := func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) }
	for _, version := range slices.SortedFunc(maps.Keys(answer.Serves), byName) {
		if !answer.Serves[version] || version.Group != "metrics.k8s.io" {
			continue
		}
		found, err := s.probe(ctx, version)
		if err == nil {
			answer.Serves[version] = found
			continue
		}
		answer.fail(version, err)
		if first == nil && !isServerError(err) {
			first = err
		}
	}
	return first
}

// probe lists one node of a version, as the HPA controller and kubectl list them; it returns false
// when the path does not exist.
func (s *session) probe(ctx context.Context, version schema.GroupVersion) (bool, error) {
	path := "/apis/" + version.String() + "/nodes"
	body, found, err := s.open(ctx, path, "limit=1")
	if err != nil || !found {
		return false, err
	}
	defer func() { _ = body.Close() }()
	if err := checkList(io.LimitReader(body, maxBody), version, "NodeMetricsList"); err != nil {
		return true, &malformedError{path, err}
	}
	return true, nil
}

// checkList returns an error unless body is a list of kind. It reads no further than the
// list's kind and apiVersion: an implementation that ignores limit returns every node.
func checkList(body io.Reader, version schema.GroupVersion, kind string) error {
	found, err := readFields(body, "kind", "apiVersion")
	if err != nil {
		return err
	}
	if found["kind"] != kind || found["apiVersion"] != version.String() {
		return fmt.Errorf("it is %.100q of %.100q, not %s of %s", found["kind"], found["apiVersion"], kind, version)
	}
	return nil
}

// readFields returns the string fields of these names. It reads no further than the last
// of them.
func readFields(body io.Reader, names ...string) (map[string]string, error) {
	decoder := json.NewDecoder(body)
	start, err := decoder.Token()
	if err != nil {
		return nil, stableError(err)
	}
	if start != json.Delim('{') {
		return nil, errors.New("it is no JSON object")
	}
	found := map[string]string{}
	for len(found) < len(names) {
		if !decoder.More() {
			return nil, fmt.Errorf("not %s in it", strings.Join(names, " and "))
		}
		field, err := decoder.Token()
		if err != nil {
			return nil, stableError(err)
		}
		name, _ := field.(string)
		if !slices.Contains(names, name) {
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				return nil, stableError(err)
			}
			continue
		}
		var value string
		if err := decoder.Decode(&value); err != nil {
			return nil, stableError(err)
		}
		found[name] = value
	}
	return found, nil
}
