// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"context"
	"fmt"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

const (
	acceptJSON = "application/json"
	// acceptAggregated requests the discovery document of all groups, which clients of
	// Kubernetes 1.27 and later use.
	acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// Discovery holds the versions of a group in the aggregated discovery document.
type Discovery struct {
	// Current are the versions that clients use.
	Current []string
	// Stale are the versions that did not answer; clients skip them.
	Stale []string
}

// Aggregated reads a group from the aggregated discovery document, /apis, of one
// kube-apiserver. Versions are sorted, best first.
func Aggregated(ctx context.Context, cluster *connection.Cluster, group string) (*Discovery, error) {
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := cluster.GetJSON(ctx, "/apis", acceptAggregated, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIGroupDiscoveryList" {
		return nil, fmt.Errorf("GET /apis: the answer is of kind %q: this kube-apiserver has no aggregated discovery (it came with Kubernetes 1.26)", list.Kind)
	}
	found := &Discovery{}
	for _, item := range list.Items {
		if item.Name != group {
			continue
		}
		for _, v := range item.Versions {
			if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale {
				found.Stale = append(found.Stale, v.Version)
			} else {
				found.Current = append(found.Current, v.Version)
			}
		}
	}
	slices.SortFunc(found.Current, CompareVersions)
	slices.SortFunc(found.Stale, CompareVersions)
	return found, nil
}

// Group is the discovery document /apis/GROUP.
type Group struct {
	// Versions, best first.
	Versions []string
	// Preferred is the version that clients should use.
	Preferred string
}

// GroupDocument reads /apis/GROUP. A group without versions is NotFound.
func GroupDocument(ctx context.Context, cluster *connection.Cluster, group string) (*Group, error) {
	var document metav1.APIGroup
	if err := cluster.GetJSON(ctx, "/apis/"+group, acceptJSON, &document); err != nil {
		return nil, err
	}
	found := &Group{Preferred: document.PreferredVersion.Version}
	for _, v := range document.Versions {
		found.Versions = append(found.Versions, v.Version)
	}
	slices.SortFunc(found.Versions, CompareVersions)
	return found, nil
}

// Resources returns the names of a version's resources, from the implementation's own discovery.
func Resources(ctx context.Context, cluster *connection.Cluster, group, version string) ([]string, error) {
	var list metav1.APIResourceList
	if err := cluster.GetJSON(ctx, "/apis/"+group+"/"+version, acceptJSON, &list); err != nil {
		return nil, err
	}
	var names []string
	for _, resource := range list.APIResources {
		names = append(names, resource.Name)
	}
	slices.Sort(names)
	return names, nil
}
