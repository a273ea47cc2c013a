// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	endpointTimeout = 10 * time.Second
	// maxAnswer is far above the discovery of any cluster.
	maxAnswer = 64 << 20
)

// addresses are those of the EndpointSlice default/kubernetes, which every
// kube-apiserver enters itself into.
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

// Ports are those that kube-apiservers listen on, in order, each once; a NetworkPolicy sees
// them in place of the Service's.
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

func (c *Client) endpoints(ctx context.Context) (*discoveryv1.EndpointSlice, error) {
	slice := &discoveryv1.EndpointSlice{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if err := c.live.Get(ctx, key, slice); err != nil {
		return nil, fmt.Errorf("get EndpointSlice %s with the addresses of kube-apiservers: %w", key, err)
	}
	return slice, nil
}

// answer is what one kube-apiserver said.
type answer struct {
	code        int
	contentType string
	body        []byte
}

// ask asks the kube-apiserver at address. It fails only when there is no answer.
func (c *Client) ask(ctx context.Context, address, path, accept string) (*answer, error) {
	hostname, err := c.hostname()
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.config)
	config.Host = "https://" + address
	config.APIPath = ""
	config.TLSClientConfig.ServerName = hostname
	config.Timeout = endpointTimeout
	// The operator's credentials go to this address only, never through a proxy.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	// Not shared after all: client-go caches no transport with a proxy function.
	defer utilnet.CloseIdleConnectionsFor(shared.Transport)
	endpoint := *shared
	endpoint.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	response, err := endpoint.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer to GET %s: %w", path, err)
	}
	return &answer{code: response.StatusCode, contentType: response.Header.Get("Content-Type"), body: body}, nil
}
