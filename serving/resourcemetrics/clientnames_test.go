// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// TestNamesOfKubectl: kubectl finds the resources by the names that work with metrics-server, and
// pods and nodes remain those of the core group.
func TestNamesOfKubectl(t *testing.T) {
	core := &restmapper.APIGroupResources{
		Group: metav1.APIGroup{
			Versions:         []metav1.GroupVersionForDiscovery{{GroupVersion: "v1", Version: "v1"}},
			PreferredVersion: metav1.GroupVersionForDiscovery{GroupVersion: "v1", Version: "v1"},
		},
		VersionedResources: map[string][]metav1.APIResource{"v1": {
			{Name: "nodes", SingularName: "node", Kind: "Node"},
			{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true},
		}},
	}
	want := map[string]string{
		"podmetrics":  "metrics.k8s.io/v1, Resource=pods",
		"PodMetrics":  "metrics.k8s.io/v1, Resource=pods",
		"nodemetrics": "metrics.k8s.io/v1, Resource=nodes",
		"NodeMetrics": "metrics.k8s.io/v1, Resource=nodes",

		"podmetrics.metrics.k8s.io":          "metrics.k8s.io/v1, Resource=pods",
		"podmetrics.v1beta1.metrics.k8s.io":  "metrics.k8s.io/v1beta1, Resource=pods",
		"nodemetrics.v1beta1.metrics.k8s.io": "metrics.k8s.io/v1beta1, Resource=nodes",
		"pods.metrics.k8s.io":                "metrics.k8s.io/v1, Resource=pods",
		"nodes.v1beta1.metrics.k8s.io":       "metrics.k8s.io/v1beta1, Resource=nodes",

		"pods": "/v1, Resource=pods", "pod": "/v1, Resource=pods",
		"nodes": "/v1, Resource=nodes", "node": "/v1, Resource=nodes",
	}
	server := serve(t, newStore(), enableAll)
	for name, legacy := range map[string]bool{"aggregated discovery": false, "discovery by group and version": true} {
		t.Run(name, func(t *testing.T) {
			client := discovery.NewDiscoveryClientForConfigOrDie(&restclient.Config{Host: server.URL})
			client.UseLegacyDiscovery = legacy
			groups, err := restmapper.GetAPIGroupResources(client)
			if err != nil {
				t.Fatal(err)
			}
			mapper := restmapper.NewDiscoveryRESTMapper(append([]*restmapper.APIGroupResources{core}, groups...))
			got := map[string]string{}
			for argument := range want {
				found := resource.NewFakeBuilder(
					func(schema.GroupVersion) (resource.RESTClient, error) { return nil, nil },
					func() (meta.RESTMapper, error) { return mapper, nil },
					func() (restmapper.CategoryExpander, error) {
						return restmapper.NewDiscoveryCategoryExpander(client), nil
					},
				).Unstructured().ResourceTypeOrNameArgs(true, argument).Do()
				mapping, err := found.ResourceMapping()
				if err != nil {
					got[argument] = err.Error()
					continue
				}
				got[argument] = mapping.Resource.String()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("resources by name (-want +got):\n%s", diff)
			}
		})
	}
}
