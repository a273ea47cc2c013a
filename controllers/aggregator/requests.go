// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Propagation delays: how long a change of an APIService may take to reach every component that
// cannot be asked about it.
const (
	// DiscoveryDelay is for kube-apiservers that cannot be asked. The aggregated discovery
	// document follows an APIService through two workers, each of which may wait 10 s for
	// one backend that does not answer, and is refreshed each minute.
	DiscoveryDelay = 90 * time.Second
	// RoutingDelay starts when every kube-apiserver has a change of an APIService in its
	// watch cache. A single worker of the aggregator handles all APIServices in turn, and
	// may wait for one that does not answer.
	RoutingDelay = 10 * time.Second
)

// acceptAggregated requests the discovery document of all groups.
const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Presence tells which kube-apiservers have versions in discovery. All addresses are
// sorted.
type Presence struct {
	// Listed holds the kube-apiservers that list a version as current.
	Listed map[schema.GroupVersion][]string
	// Asked holds all kube-apiservers that answered.
	Asked []string
	// Unreachable holds the kube-apiservers that could not be asked.
	Unreachable []string
}

// Missing returns the kube-apiservers that answered and do not list the version.
func (p *Presence) Missing(version schema.GroupVersion) []string {
	return slices.DeleteFunc(slices.Clone(p.Asked), func(address string) bool {
		return slices.Contains(p.Listed[version], address)
	})
}

// Discovered reads the aggregated discovery document of every kube-apiserver, since a
// connection through the Service reaches only one of them, and returns where the
// versions are current. Clients skip stale ones. It fails when the addresses of the
// kube-apiservers cannot be read.
func (c *Client) Discovered(ctx context.Context, versions []schema.GroupVersion) (*Presence, error) {
	presence := &Presence{Listed: map[schema.GroupVersion][]string{}}
	var err error
	presence.Unreachable, err = getEach(ctx, c, c.current, func(address string, current []schema.GroupVersion) {
		presence.Asked = append(presence.Asked, address)
		for _, version := range versions {
			if slices.Contains(current, version) {
				presence.Listed[version] = append(presence.Listed[version], address)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return presence, nil
}

// Lagging reads the APIService from the watch cache (resourceVersion=0) of every
// kube-apiserver, which is what its aggregator follows. It returns the sorted addresses
// of those whose APIService is missing or not upToDate, and of those that could not be
// asked. It fails when the addresses of the kube-apiservers cannot be read.
//
// Once none lags, aggregators act within milliseconds, but each of them handles all
// APIServices in a single worker: callers must allow for that.
func (c *Client) Lagging(ctx context.Context, name string, upToDate func(*apiregistrationv1.APIService) bool) (lagging, unreachable []string, err error) {
	read := func(ctx context.Context, address string) (*apiregistrationv1.APIService, error) {
		return c.cached(ctx, address, name)
	}
	unreachable, err = getEach(ctx, c, read, func(address string, service *apiregistrationv1.APIService) {
		if service == nil || !upToDate(service) {
			lagging = append(lagging, address)
		}
	})
	return lagging, unreachable, err
}

// getEach reads from all kube-apiservers concurrently, then calls visit with each result
// in the order of their addresses. It returns the addresses whose read failed.
func getEach[T any](ctx context.Context, c *Client, read func(ctx context.Context, address string) (T, error), visit func(address string, got T)) ([]string, error) {
	addresses, err := c.addresses(ctx)
	if err != nil {
		return nil, err
	}
	got := make([]T, len(addresses))
	errs := make([]error, len(addresses))
	var reads sync.WaitGroup
	for i, address := range addresses {
		reads.Go(func() { got[i], errs[i] = read(ctx, address) })
	}
	reads.Wait()
	var unreachable []string
	for i, address := range addresses {
		if errs[i] != nil {
			klog.FromContext(ctx).V(1).Info("Cannot read from a kube-apiserver", "address", address, "err", errs[i])
			unreachable = append(unreachable, address)
			continue
		}
		visit(address, got[i])
	}
	return unreachable, nil
}

// current returns the group-versions that one kube-apiserver lists as current.
func (c *Client) current(ctx context.Context, address string) ([]schema.GroupVersion, error) {
	got, err := c.get(ctx, address, "/apis", acceptAggregated)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read discovery: %w", err)
	case !strings.Contains(got.contentType, "as=APIGroupDiscoveryList"):
		return nil, errors.New("this kube-apiserver has no aggregated discovery of version v2")
	}
	var groups apidiscoveryv2.APIGroupDiscoveryList
	if err := json.Unmarshal(got.body, &groups); err != nil {
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

// cached returns the APIService in the watch cache of one kube-apiserver, or nil when
// there is none.
func (c *Client) cached(ctx context.Context, address, name string) (*apiregistrationv1.APIService, error) {
	path := "/apis/" + apiregistrationv1.SchemeGroupVersion.String() + "/apiservices/" + name + "?resourceVersion=0"
	got, err := c.get(ctx, address, path, runtime.ContentTypeJSON)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	service := &apiregistrationv1.APIService{}
	if err := json.Unmarshal(got.body, service); err != nil {
		return nil, fmt.Errorf("decode the answer to GET %s: %w", path, err)
	}
	if service.Name != name {
		return nil, fmt.Errorf("GET %s answered with APIService %q", path, service.Name)
	}
	return service, nil
}

const (
	// samplePage and samplePages bound how many nodes are read. Serving leaves out
	// points older than maxSampleAge, so the first page is usually enough.
	samplePage  = "50"
	samplePages = 20
)

// Discovers returns an error unless discovery of the version answers through
// kube-apiserver, which proxies that request to the server of the version. An empty list
// of resources is fine: custom and external metrics list the metrics that exist.
func (c *Client) Discovers(ctx context.Context, version schema.GroupVersion) error {
	var resources struct {
		GroupVersion string `json:"groupVersion"`
	}
	path := "/apis/" + version.String()
	if err := c.Get(ctx, path, nil, &resources); err != nil {
		return err
	}
	if resources.GroupVersion != version.String() {
		return fmt.Errorf("GET %s: the answer is discovery of %.100q", path, resources.GroupVersion)
	}
	return nil
}

// FreshNodeSample reports whether node metrics of the version, requested through
// kube-apiserver, have a sample from after since.
func (c *Client) FreshNodeSample(ctx context.Context, version schema.GroupVersion, since time.Time) (bool, error) {
	params := url.Values{"limit": {samplePage}}
	for range samplePages {
		// The fields that all versions of the list have in common.
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []struct {
				Timestamp metav1.Time `json:"timestamp"`
			} `json:"items"`
		}
		if err := c.Get(ctx, "/apis/"+version.String()+"/nodes", params, &page); err != nil {
			return false, err
		}
		for i := range page.Items {
			if page.Items[i].Timestamp.After(since) {
				return true, nil
			}
		}
		if page.Metadata.Continue == "" {
			break
		}
		params.Set("continue", page.Metadata.Continue)
	}
	return false, nil
}

// Get sends a request through kube-apiserver as any client would, and decodes the response.
func (c *Client) Get(ctx context.Context, path string, params url.Values, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.rest.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON)
	for name := range params {
		request = request.Param(name, params.Get(name))
	}
	result := request.Do(ctx)
	// Raw's error lacks the message of the status that was sent.
	if err := result.Error(); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode the answer of %s: %w", path, err)
	}
	return nil
}
