// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is served of nodes without Linux' cgroups: of each body there are two, 15 s apart. They are
// constructed from what writes them, which the cases name.
func TestOtherNodes(t *testing.T) {
	tests := map[string]struct {
		// body is written at a time in Unix ms, some seconds after the first.
		body  func(at int64, after float64) string
		want  map[string][]string
		skips map[string]int
	}{
		// The collector of Linux, without swap. The figures are of kubernetes/kubernetes#111416, where
		// containerd had none of a HostProcess container, and the kubelet therefore writes zeros.
		"a Windows node": {
			body: func(at int64, after float64) string {
				return fmt.Sprintf(`# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} %[2]v %[1]d
container_cpu_usage_seconds_total{container="windows-exporter",namespace="monitoring",pod="windows-exporter-h7lp2"} 0 %[1]d
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 3.40140032e+08 %[1]d
container_memory_working_set_bytes{container="windows-exporter",namespace="monitoring",pod="windows-exporter-h7lp2"} 0 %[1]d
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="shop",pod="web"} 1.74e+09
container_start_time_seconds{container="windows-exporter",namespace="monitoring",pod="windows-exporter-h7lp2"} 1.74e+09
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total %[3]v %[1]d
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 4.33328128e+08 %[1]d
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="monitoring",pod="windows-exporter-h7lp2"} 0 %[1]d
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} %[2]v %[1]d
# TYPE resource_scrape_error gauge
resource_scrape_error 0
`, at, 409.1875+after/100, 5504+after/2)
			},
			want: map[string][]string{"/n1": {": 500000000n 433328128B"}, "shop/web": {"app: 10000000n 340140032B"}},
		},
		// virtual-kubelet/azure-aci, pkg/metrics: no figures of the node, the start is the pod's
		// creation, and an older name of scrape_error.
		"a virtual node of Azure Container Instances": {
			body: func(at int64, after float64) string {
				return fmt.Sprintf(`# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",namespace="shop",pod="web"} %[2]v %[1]d
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="app",namespace="shop",pod="web"} 2.097152e+07 %[1]d
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="app",namespace="shop",pod="web"} 1.74e+09 1740000000000
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} %[2]v %[1]d
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="shop",pod="web"} 2.097152e+07 %[1]d
# TYPE scrape_error gauge
scrape_error 0
`, at, 12+after/50)
			},
			want: map[string][]string{"shop/web": {"app: 20000000n 20971520B"}},
		},
		// Providers of virtual-kubelet without containers, such as for virtual machines.
		"a virtual node with figures of pods alone": {
			body: func(_ int64, after float64) string {
				return fmt.Sprintf("pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} %v\npod_memory_working_set_bytes{namespace=\"shop\",pod=\"web\"} 2.097152e+07\n", 12+after/50)
			},
			want: map[string][]string{},
		},
		// The mock provider of virtual-kubelet, which others started from, has labels of its own.
		"a virtual node with other labels": {
			body: func(_ int64, after float64) string {
				return fmt.Sprintf("container_cpu_usage_seconds_total{NodeName=\"vk\",PodName=\"web\",containerName=\"app\"} %v\nnode_cpu_usage_seconds_total{NodeName=\"vk\"} %v\nnode_memory_working_set_bytes{NodeName=\"vk\"} 4096\n", 12+after/50, 100+after)
			},
			want:  map[string][]string{"/n1": {": 1000000000n 4096B"}},
			skips: map[string]int{"Labels": 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var state nodeState
			got := map[string][]string{}
			for _, after := range []float64{0, 15} {
				nodes, pods, stats := scrapeText(t, &state, tc.body(sec(after).UnixMilli(), after), after, false)
				for _, u := range append(nodes, pods...) {
					got[u.Key.Namespace+"/"+u.Key.Name] = short(u.Point).Usages
				}
				wantSkips := map[string]int{}
				maps.Copy(wantSkips, tc.skips)
				if diff := cmp.Diff(wantSkips, skips(&stats)); diff != "" {
					t.Errorf("skipped (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("served (-want +got):\n%s", diff)
			}
		})
	}
}
