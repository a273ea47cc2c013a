//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
)

// fastScrapes is a MetricsBackend that scrapes the nodes of one test each second, with further fields of its spec.
func fastScrapes(test string, fields ...string) string {
	return fmt.Sprintf(`
apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec: {%s}
`, strings.Join(append(fields, fmt.Sprintf("resourceMetrics: {scrape: {interval: 1s, timeout: 1s, nodeSelector: {matchLabels: {%s: %s}}}}", nodesOf, test)), ", "))
}

// TestThroughKubeAPIServer asks as users do. Its subtests only read.
func TestThroughKubeAPIServer(t *testing.T) {
	startWorkload(t, "cluster")
	p := cluster.startServing(t, "cluster", "--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes("cluster"))))
	p.waitReady(t)
	cluster.registerBoth(t, "cluster", p.port)
	outcome.Eventually(t, 20*time.Second, "there are metrics of all pods", func(context.Context) error {
		return wantCount(t.Context(), "/apis/metrics.k8s.io/v1/pods", 3)
	})

	t.Run("typed clients", testTypedClients)
	t.Run("kubectl top", testKubectlTop)
	t.Run("discovery", testDiscovery)
	t.Run("OpenAPI", testOpenAPI)
	t.Run("access", func(t *testing.T) { testAccess(t, p) })
	t.Run("own endpoints", func(t *testing.T) { testOwnEndpoints(t, p) })
}

func raw(ctx context.Context, path string) ([]byte, error) {
	return cluster.client.Discovery().RESTClient().Get().RequestURI(path).DoRaw(ctx)
}

func wantCount(ctx context.Context, path string, want int) error {
	body, err := raw(ctx, path)
	if err != nil {
		return err
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("decode %s: %w", body, err)
	}
	if len(list.Items) != want {
		return fmt.Errorf("%d items, want %d: %s", len(list.Items), want, body)
	}
	return nil
}

func newMetricsClient(t *testing.T, config *rest.Config) metricsclient.Interface {
	t.Helper()
	client, err := metricsclient.NewForConfig(config)
	if err != nil {
		t.Fatalf("make a metrics client: %v", err)
	}
	return client
}

func testTypedClients(t *testing.T) {
	client := newMetricsClient(t, cluster.config)
	node, err := client.MetricsV1().NodeMetricses().Get(t.Context(), "node-a", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get a node of v1: %v", err)
	}
	checkUsage(t, "node-a of v1", node.Usage, nodeMillicores, nodeMebibytes)
	if node.Labels["zone"] != "x" || node.ResourceVersion == "" || node.Window.Duration <= 0 || node.Timestamp.IsZero() {
		t.Errorf("node-a of v1: labels %v, resourceVersion %q, window %s, timestamp %s", node.Labels, node.ResourceVersion, node.Window.Duration, node.Timestamp)
	}
	pod, err := client.MetricsV1beta1().PodMetricses(workloads).Get(t.Context(), "web-0", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get a pod of v1beta1: %v", err)
	}
	var names []string
	for _, container := range pod.Containers {
		names = append(names, container.Name)
		checkUsage(t, "container "+container.Name+" of v1beta1", container.Usage, containerMillicores, containerMebibytes)
	}
	if diff := cmp.Diff([]string{"app", "sidecar"}, names); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	var listV1 *metricsv1.PodMetricsList
	if listV1, err = client.MetricsV1().PodMetricses("").List(t.Context(), metav1.ListOptions{}); err != nil || len(listV1.Items) != 3 {
		t.Errorf("list pods of v1: %v, %v", listV1, err)
	}
	var listBeta *metricsv1beta1.NodeMetricsList
	if listBeta, err = client.MetricsV1beta1().NodeMetricses().List(t.Context(), metav1.ListOptions{}); err != nil || len(listBeta.Items) != 2 {
		t.Errorf("list nodes of v1beta1: %v, %v", listBeta, err)
	}
}

// checkUsage allows a tenth on CPU: the counters are rounded.
func checkUsage(t *testing.T, what string, usage corev1.ResourceList, millicores, mebibytes int64) {
	t.Helper()
	if got := usage.Cpu().MilliValue(); got < millicores*9/10 || got > millicores*11/10 {
		t.Errorf("%s uses %d mCPU, want about %d", what, got, millicores)
	}
	if got := usage.Memory().Value(); got != mebibytes<<20 {
		t.Errorf("%s uses %d bytes, want %d MiB", what, got, mebibytes)
	}
}
