// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	group = "metrics.k8s.io"
	// acceptAggregated asks for the discovery document that kubectl reads.
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// Read is one read of aggregated discovery.
type Read struct {
	Began, Ended time.Time
	// Current are the versions of metrics.k8s.io that clients use, in the order of
	// preference; Stale are those that are listed without content.
	Current, Stale []string
	// Err is why it failed.
	Err string
}

// Lists tells whether the version is current.
func (r Read) Lists(version string) bool { return slices.Contains(r.Current, version) }

func (c *Clients) discover(ctx context.Context, client *http.Client) {
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		read := readDiscovery(ctx, client, c.options.Config.Host)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reads = append(c.reads, read)
	}, discoveryPeriod)
}

// preferred is the version that kubectl would use: v1, unless the last read of
// discovery that succeeded does not list it.
func (c *Clients) preferred() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.reads) - 1; i >= 0; i-- {
		if c.reads[i].Err != "" {
			continue
		}
		if c.reads[i].Lists("v1") {
			return "v1"
		}
		break
	}
	return "v1beta1"
}

func readDiscovery(ctx context.Context, client *http.Client, host string) Read {
	read := Read{Began: time.Now()}
	list, err := getDiscovery(ctx, client, host)
	read.Ended = time.Now()
	if err != nil {
		read.Err = err.Error()
		return read
	}
	for _, g := range list.Items {
		if g.Name != group {
			continue
		}
		for _, v := range g.Versions {
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				read.Stale = append(read.Stale, v.Version)
			} else {
				read.Current = append(read.Current, v.Version)
			}
		}
	}
	return read
}

func getDiscovery(ctx context.Context, client *http.Client, host string) (*apidiscoveryv2.APIGroupDiscoveryList, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/apis", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", acceptAggregated)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.200s", response.Status, body)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	return &list, json.Unmarshal(body, &list)
}
