// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	acceptJSON     = "application/json"
	acceptProtobuf = "application/vnd.kubernetes.protobuf"
	acceptTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	acceptMetadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

	// maxBody bounds what is read of one answer: lists of a great cluster fit.
	maxBody = 1 << 30
)

// connection sends requests as they are, without a client's retries and limits.
type connection struct {
	base   *url.URL
	client *http.Client
}

func newConnection(config *rest.Config) (*connection, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the server's address %q: %w", config.Host, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", base, err)
	}
	return &connection{base: base, client: client}, nil
}

// newOwnConnection shares no connection with others, which client-go pools: it may
// reach another replica.
func newOwnConnection(config *rest.Config) (*connection, error) {
	return newDialledConnection(config, func(net.Conn) {})
}

// newIdleConnection is one of its own that takes in as little as it may without
// being read: HTTP/1, whose flow control is TCP's, and a small buffer.
func newIdleConnection(config *rest.Config) (*connection, error) {
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	return newDialledConnection(config, func(c net.Conn) {
		if tcp, ok := c.(*net.TCPConn); ok {
			// Without it the kernel takes what it likes; the check is weaker then.
			_ = tcp.SetReadBuffer(4 << 10)
		}
	})
}

func newDialledConnection(config *rest.Config, adjust func(net.Conn)) (*connection, error) {
	config = rest.CopyConfig(config)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	// A function of its own keeps client-go from sharing the transport.
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		adjust(c)
		return c, nil
	}
	return newConnection(config)
}

// answer is what came back, whatever its code.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// refusal is an answer other than 200.
type refusal struct{ answer }

// Error shows the message of a Status, or else the body.
func (r *refusal) Error() string {
	text := strings.TrimSpace(string(r.body))
	if s, ok := r.status(); ok {
		text = s.Message
	}
	if text == "" {
		text = "without a body"
	}
	return fmt.Sprintf("%d %s: %.300s", r.code, http.StatusText(r.code), text)
}

// status returns the Status that is the body, if it is one.
func (r *refusal) status() (metav1.Status, bool) {
	var s metav1.Status
	err := json.Unmarshal(r.body, &s)
	return s, err == nil && s.Kind == "Status"
}

// open sends a request and returns the response if its code is 200, or else a
// *refusal.
func (c *connection) open(ctx context.Context, method, path string, query url.Values, accept string) (*http.Response, error) {
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return nil, &refusal{answer{response.StatusCode, response.Header, body}}
}

// get returns the body of an answer of 200, in JSON, or a *refusal.
func (c *connection) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	response, err := c.open(ctx, http.MethodGet, path, query, acceptJSON)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", path, err)
	}
	return body, nil
}

// getJSON decodes the body of an answer of 200.
func (c *connection) getJSON(ctx context.Context, path string, into any) error {
	body, err := c.get(ctx, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", path, err)
	}
	return nil
}
