// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samples reads the data of metrics.k8s.io as any client does: through
// kube-apiserver, with one version.
package samples

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

const (
	// pageSize bounds an answer where the server pages; metrics-server does not.
	pageSize = 500
	// maxPages bounds the nodes that are read: 25,000, more than any cluster has.
	maxPages = 50
)

// Getter reads a path of kube-apiserver.
type Getter interface {
	Get(ctx context.Context, path, accept string) ([]byte, error)
}

// Sample is a data point of a node or a pod.
type Sample struct {
	// Time is the end of the window that it speaks of.
	Time time.Time
	// Usage is a node's, or of each of a pod's containers, as CONTAINER/RESOURCE.
	Usage map[string]resource.Quantity
}

// Equal tells whether two samples of one time are the same.
func (s Sample) Equal(other Sample) bool {
	return s.Time.Equal(other.Time) && maps.EqualFunc(s.Usage, other.Usage, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// Samples are data points by name: a node's, or NAMESPACE/NAME of a pod.
type Samples map[string]Sample

// Newest is the time of the newest; zero when there is none.
func (s Samples) Newest() time.Time {
	var newest time.Time
	for _, sample := range s {
		if sample.Time.After(newest) {
			newest = sample.Time
		}
	}
	return newest
}

// Since counts those that are not older than a time.
func (s Samples) Since(oldest time.Time) int {
	count := 0
	for _, sample := range s {
		if !sample.Time.Before(oldest) {
			count++
		}
	}
	return count
}

// Nodes reads the samples of all nodes.
func Nodes(ctx context.Context, from Getter, version string) (Samples, error) {
	return read(ctx, from, version, "nodes", maxPages)
}

// SomePods reads the samples of the first pods: of all where the server does not page.
func SomePods(ctx context.Context, from Getter, version string) (Samples, error) {
	return read(ctx, from, version, "pods", 1)
}

type list struct {
	metav1.ListMeta `json:"metadata"`
	Items           []item `json:"items"`
}

// item is a NodeMetrics or a PodMetrics of any version: they are alike.
type item struct {
	metav1.ObjectMeta `json:"metadata"`
	Timestamp         metav1.Time                  `json:"timestamp"`
	Usage             map[string]resource.Quantity `json:"usage"`
	Containers        []struct {
		Name  string                       `json:"name"`
		Usage map[string]resource.Quantity `json:"usage"`
	} `json:"containers"`
}

func read(ctx context.Context, from Getter, version, kind string, pages int) (Samples, error) {
	found := Samples{}
	next := ""
	for range pages {
		path := fmt.Sprintf("/apis/%s/%s/%s?limit=%d", aggregation.GroupResourceMetrics, version, kind, pageSize)
		if next != "" {
			path += "&continue=" + url.QueryEscape(next)
		}
		body, err := from.Get(ctx, path, "application/json")
		if err != nil {
			return nil, err
		}
		var page list
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("GET %s: decode the answer: %w", path, err)
		}
		for _, i := range page.Items {
			found[i.name()] = Sample{Time: i.Timestamp.Time, Usage: i.usage()}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	return found, nil
}

func (i *item) name() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}

func (i *item) usage() map[string]resource.Quantity {
	if len(i.Containers) == 0 {
		return i.Usage
	}
	usage := map[string]resource.Quantity{}
	for _, c := range i.Containers {
		for name, quantity := range c.Usage {
			usage[c.Name+"/"+name] = quantity
		}
	}
	return usage
}
