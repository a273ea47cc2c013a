// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// acceptAggregated asks for the one discovery document of all groups.
const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Presence is where versions still are in discovery.
type Presence struct {
	// Listed holds the addresses of the kube-apiservers that still list a version
	// as current, in order.
	Listed map[schema.GroupVersion][]string
	// Asked holds the addresses of all that answered, in order.
	Asked []string
	// Unreachable holds the addresses of those that could not be asked.
	Unreachable []string
}

// Missing are the addresses of the kube-apiservers that answered and do not list
// the version, in order.
func (p *Presence) Missing(version schema.GroupVersion) []string {
	return slices.DeleteFunc(slices.Clone(p.Asked), func(address string) bool {
		return slices.Contains(p.Listed[version], address)
	})
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
	found := make([][]schema.GroupVersion, len(addresses))
	errs := make([]error, len(addresses))
	var asked sync.WaitGroup
	for i, address := range addresses {
		asked.Go(func() { found[i], errs[i] = c.current(ctx, address) })
	}
	asked.Wait()
	presence := &Presence{Listed: map[schema.GroupVersion][]string{}}
	for i, address := range addresses {
		if errs[i] != nil {
			klog.FromContext(ctx).V(1).Info("Cannot read the discovery of a kube-apiserver", "address", address, "err", errs[i])
			presence.Unreachable = append(presence.Unreachable, address)
			continue
		}
		presence.Asked = append(presence.Asked, address)
		for _, version := range versions {
			if slices.Contains(found[i], version) {
				presence.Listed[version] = append(presence.Listed[version], address)
			}
		}
	}
	return presence, nil
}

// current returns the group-versions that one kube-apiserver lists as current.
func (c *Client) current(ctx context.Context, address string) ([]schema.GroupVersion, error) {
	discovery, err := c.ask(ctx, address, "/apis", acceptAggregated)
	switch {
	case err != nil:
		return nil, err
	case discovery.code != http.StatusOK:
		return nil, fmt.Errorf("discovery answered %d %s", discovery.code, http.StatusText(discovery.code))
	case !strings.Contains(discovery.contentType, "as=APIGroupDiscoveryList"):
		return nil, errors.New("this kube-apiserver has no aggregated discovery of version v2")
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(discovery.body, &groups); err != nil {
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
