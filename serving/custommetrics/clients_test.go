// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"
	"k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	stock "k8s.io/metrics/pkg/client/custom_metrics"
)

// TestStockClient is what the HPA controller does, with the versions that there are.
func TestStockClient(t *testing.T) {
	for name, only := range map[string]string{"v1beta1 alone": "v1beta1", "v1beta2 alone": "v1beta2", "both": ""} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, newWorld(), func(_ *serverConfig, o *Options) {
				o.Enabled = func(v schema.GroupVersion) bool { return only == "" || v.Version == only }
			})
			config := &restclient.Config{Host: server.URL}
			versions := stock.NewAvailableAPIsGetter(discovery.NewDiscoveryClientForConfigOrDie(config))
			preferred, err := versions.PreferredVersion()
			if err != nil {
				t.Fatal(err)
			}
			if want := only; preferred.Version != want && (want != "" || preferred.Version != "v1beta2") {
				t.Errorf("it prefers %s", preferred)
			}
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{podKind.GroupVersion(), ingressKind.GroupVersion()})
			mapper.Add(podKind, meta.RESTScopeNamespace)
			mapper.Add(ingressKind, meta.RESTScopeNamespace)
			mapper.Add(nodeKind, meta.RESTScopeRoot)
			mapper.Add(spaceKind, meta.RESTScopeRoot)
			client := stock.NewForConfig(config, mapper, versions)
			everything := labels.Everything()
			shop := client.NamespacedMetrics("shop")

			list, err := shop.GetForObjects(podKind.GroupKind(), labels.SelectorFromSet(labels.Set{"app": "web"}), "hits", everything)
			if err != nil {
				t.Fatalf("GetForObjects of pods: %v", err)
			}
			if diff := cmp.Diff(webPodsIn("v1beta2"), brief(t, list)); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			for what, tc := range map[string]struct {
				get  func() (*v1beta2.MetricValue, error)
				want string
			}{
				"a pod": {
					func() (*v1beta2.MetricValue, error) {
						return shop.GetForObject(podKind.GroupKind(), "web-1", "hits", everything)
					},
					"v1beta2 Pod/web-1 hits=500m over 120s at 12:00:00",
				},
				"an ingress": {
					func() (*v1beta2.MetricValue, error) {
						return shop.GetForObject(ingressKind.GroupKind(), "front", "hits", everything)
					},
					"v1beta2 Ingress/front hits=10 over 120s at 12:00:00",
				},
				"a node": {
					func() (*v1beta2.MetricValue, error) {
						return client.RootScopedMetrics().GetForObject(nodeKind.GroupKind(), "node-a", "load", everything)
					},
					"v1beta2 Node/node-a load=2 over 120s at 12:00:00",
				},
				"a namespace": {
					func() (*v1beta2.MetricValue, error) {
						return client.RootScopedMetrics().GetForObject(spaceKind.GroupKind(), "shop", "queue-length", everything)
					},
					"v1beta2 Namespace/shop queue-length=42 over 120s at 12:00:00",
				},
			} {
				value, err := tc.get()
				if err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				if diff := cmp.Diff([]string{tc.want}, brief(t, value)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			nodes, err := client.RootScopedMetrics().GetForObjects(nodeKind.GroupKind(), everything, "load", everything)
			if err != nil || len(nodes.Items) != 1 {
				t.Errorf("GetForObjects of nodes: %v, %v", nodes, err)
			}
			if _, err := shop.GetForObject(podKind.GroupKind(), "other", "hits", everything); !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "has no value") {
				t.Errorf("an object without a value: %v", err)
			}
			if _, err := shop.GetForObject(podKind.GroupKind(), "web-1", "misses", everything); !apierrors.IsNotFound(err) {
				t.Errorf("no such metric: %v", err)
			}
		})
	}
}
