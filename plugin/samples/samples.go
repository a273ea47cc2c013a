// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samples reads node and pod metrics of one version of metrics.k8s.io.
package samples

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

const (
	// pageSize is the limit of a page, which metrics-server ignores.
	pageSize = 500
	// maxPages limits a list to 200,000 pods, more than Kubernetes supports.
	maxPages = 400
)

// Sample is a data point of a node or a pod.
type Sample struct {
	// Time is the end of the sample's window.
	Time time.Time
	// Usage is by RESOURCE for nodes, and by CONTAINER/RESOURCE for pods.
	Usage map[string]resource.Quantity
}

// Samples are samples by the node's name, or the pod's NAMESPACE/NAME.
type Samples map[string]Sample

// Newest returns the time of the newest sample, or zero.
func (s Samples) Newest() time.Time {
	var newest time.Time
	for _, sample := range s {
		if sample.Time.After(newest) {
			newest = sample.Time
		}
	}
	return newest
}

// Since returns the number of samples that are not older than a time.
func (s Samples) Since(oldest time.Time) int {
	count := 0
	for _, sample := range s {
		if !sample.Time.Before(oldest) {
			count++
		}
	}
	return count
}

type list struct {
	metav1.ListMeta `json:"metadata"`
	Items           []item `json:"items"`
}

// item is a NodeMetrics or a PodMetrics of any version.
type item struct {
	metav1.ObjectMeta `json:"metadata"`
	Timestamp         metav1.Time                  `json:"timestamp"`
	Usage             map[string]resource.Quantity `json:"usage"`
	Containers        []struct {
		Name  string                       `json:"name"`
		Usage map[string]resource.Quantity `json:"usage"`
	} `json:"containers"`
}

// Read reads the samples of all objects of a kind, nodes or pods, in a version.
func Read(ctx context.Context, cluster *connection.Cluster, version, kind string) (Samples, error) {
	found := Samples{}
	next := ""
	for range maxPages {
		path := fmt.Sprintf("/apis/%s/%s/%s?limit=%d", aggregation.GroupResourceMetrics, version, kind, pageSize)
		if next != "" {
			path += "&continue=" + url.QueryEscape(next)
		}
		var page list
		if err := cluster.GetJSON(ctx, path, "application/json", &page); err != nil {
			return nil, err
		}
		for _, i := range page.Items {
			found[cache.MetaObjectToName(&i.ObjectMeta).String()] = Sample{Time: i.Timestamp.Time, Usage: i.usage()}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	return found, nil
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
