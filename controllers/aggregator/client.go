// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregator reads the state of the aggregation layer: which API versions each
// kube-apiserver of the control plane has in discovery, which APIServices it has in its
// watch cache, and whether a version answers requests through kube-apiserver.
package aggregator

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/bodylimit"
)

const (
	requestTimeout = 10 * time.Second
	// dialTimeout is for kube-apiservers whose packets are dropped.
	dialTimeout = 5 * time.Second
	// maxBody bounds a response. It is far above the size of a cluster's discovery document,
	// and those of three kube-apiservers together are below the operator's memory limit.
	maxBody = 16 << 20
)

// Client sends requests to kube-apiservers with the operator's own credentials.
type Client struct {
	config *rest.Config
	rest   rest.Interface
	live   client.Reader
}

// NewClient returns a Client for the cluster of config. live must not be a cache.
func NewClient(config *rest.Config, live client.Reader) (*Client, error) {
	raw := bodylimit.Config(config, maxBody)
	// Serving does not count requests with this user agent as use of a version: see
	// v1alpha1.IsOwnUserAgent.
	raw.UserAgent = v1alpha1.OperatorUserAgent + "/" + version.Get().GitVersion
	// Responses are read raw; the codecs only decode errors.
	raw.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.UnversionedRESTClientFor(raw)
	if err != nil {
		return nil, fmt.Errorf("make a client for aggregated APIs: %w", err)
	}
	return &Client{config: config, rest: r, live: live}, nil
}

// Ports returns the ports that kube-apiservers listen on, sorted and without duplicates.
// A NetworkPolicy sees them instead of the Service's port.
func (c *Client) Ports(ctx context.Context) ([]int32, error) {
	slice, err := c.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var ports []int32
	for _, port := range slice.Ports {
		ports = append(ports, ptr.Deref(port.Port, 443))
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// addresses returns the sorted addresses of the EndpointSlice default/kubernetes, in
// which every kube-apiserver registers itself.
func (c *Client) addresses(ctx context.Context) ([]string, error) {
	slice, err := c.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		for _, ip := range endpoint.Addresses {
			for _, port := range slice.Ports {
				addresses = append(addresses, net.JoinHostPort(ip, strconv.Itoa(int(ptr.Deref(port.Port, 443)))))
			}
		}
	}
	slices.Sort(addresses)
	if len(addresses) == 0 {
		return nil, fmt.Errorf("EndpointSlice %s holds no address of a kube-apiserver", client.ObjectKeyFromObject(slice))
	}
	return addresses, nil
}

func (c *Client) endpoints(ctx context.Context) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if err := c.live.Get(ctx, key, slice); err != nil {
		return nil, fmt.Errorf("get EndpointSlice %s with the addresses of kube-apiservers: %w", key, err)
	}
	return slice, nil
}

// hostname returns the name for which the current kube-apiserver was verified. All
// kube-apiservers have it in their certificates, since any of them may answer.
func (c *Client) hostname() (string, error) {
	if c.config.TLSClientConfig.ServerName != "" {
		return c.config.TLSClientConfig.ServerName, nil
	}
	server, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return "", fmt.Errorf("read the address of kube-apiserver: %w", err)
	}
	return server.Hostname(), nil
}

type response struct {
	contentType string
	body        []byte
}

// connectError is an error before there was a connection to a kube-apiserver.
type connectError struct{ error }

func (e connectError) Unwrap() error { return e.error }

// get sends a request to the kube-apiserver at address. The error is an APIStatus if it
// does not answer 200.
func (c *Client) get(ctx context.Context, address, path, accept string) (*response, error) {
	hostname, err := c.hostname()
	if err != nil {
		return nil, err
	}
	config := bodylimit.Config(c.config, maxBody)
	config.Host = "https://" + address
	config.APIPath = ""
	config.TLSClientConfig.ServerName = hostname
	config.Timeout = requestTimeout
	if config.Dial == nil {
		config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	// The operator's credentials must reach this address only: no proxy, no redirects.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// client-go caches no transport with a proxy function, so the connections are ours.
	defer utilnet.CloseIdleConnectionsFor(shared.Transport)
	endpoint := *shared
	endpoint.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	got, err := endpoint.Do(request)
	switch {
	case err != nil && !connected:
		return nil, connectError{err}
	case err != nil:
		return nil, err
	}
	defer func() { _ = got.Body.Close() }()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer to GET %s: %w", path, err)
	}
	if got.StatusCode != http.StatusOK {
		return nil, statusError(got.StatusCode, body)
	}
	return &response{contentType: got.Header.Get("Content-Type"), body: body}, nil
}
