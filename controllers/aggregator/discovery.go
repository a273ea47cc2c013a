// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// acceptAggregated asks for the one discovery document of all groups.
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	endpointTimeout  = 10 * time.Second
	// maxDiscovery is far above the discovery of any cluster.
	maxDiscovery = 64 << 20
)

// Presence is where versions still are in discovery.
type Presence struct {
	// Listed holds the addresses of the kube-apiservers that still list a version
	// as current, in order.
	Listed map[schema.GroupVersion][]string
	// Unreachable holds the addresses of those that could not be asked.
	Unreachable []string
}

// Discovered asks every kube-apiserver by itself (a connection through the
// Service sees only one of them) which of the versions are in its aggregated
// discovery document as current. Clients skip those that are stale. It fails
// when the addresses of the kube-apiservers cannot be read.
func (c *Client) Discovered(ctx context.Context, versions []schema.GroupVersion) (*Presence, error) {
	addresses, err := c.addresses(ctx)
	if err != nil {
		return nil, err
	}
	presence := &Presence{Listed: map[schema.GroupVersion][]string{}}
	for _, address := range addresses {
		current, err := c.current(ctx, address)
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Cannot read the discovery of a kube-apiserver", "address", address, "err", err)
			presence.Unreachable = append(presence.Unreachable, address)
			continue
		}
		for _, version := range versions {
			if slices.Contains(current, version) {
				presence.Listed[version] = append(presence.Listed[version], address)
			}
		}
	}
	return presence, nil
}

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

// current returns the group-versions that one kube-apiserver lists as current.
func (c *Client) current(ctx context.Context, address string) ([]schema.GroupVersion, error) {
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
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/apis", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", acceptAggregated)
	response, err := endpoint.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("discovery answered %s", response.Status)
	}
	if !strings.Contains(response.Header.Get("Content-Type"), "as=APIGroupDiscoveryList") {
		return nil, errors.New("this kube-apiserver has no aggregated discovery of version v2")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDiscovery))
	if err != nil {
		return nil, fmt.Errorf("read discovery: %w", err)
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(body, &groups); err != nil {
		return nil, fmt.Errorf("decode discovery: %w", err)
	}
	var current []schema.GroupVersion
	for _, group := range groups.Items {
		for _, version := range group.Versions {
			if version.Freshness != apidiscoveryv2.DiscoveryFreshnessStale {
				current = append(current, schema.GroupVersion{Group: group.Name, Version: version.Version})
			}
		}
	}
	return current, nil
}
