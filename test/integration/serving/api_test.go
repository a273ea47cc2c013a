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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
)

const fastScrapes = `
apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata: {name: cluster}
spec: {resourceMetrics: {scrape: {interval: 1s, timeout: 1s}}}
`

// TestThroughKubeAPIServer asks as users do. Its subtests only read.
func TestThroughKubeAPIServer(t *testing.T) {
	kubelets := []*fakeKubelet{cluster.startKubelet(t), cluster.startKubelet(t)}
	kubelets[0].run("web-0", "app", "sidecar")
	kubelets[0].run("web-1", "app")
	kubelets[1].run("job-0", "work")
	cluster.createNode(t, "node-a", kubelets[0].port, map[string]string{"zone": "x"})
	cluster.createNode(t, "node-b", kubelets[1].port, map[string]string{"zone": "y"})
	cluster.createPod(t, "node-a", "web-0", map[string]string{"app": "web"}, "app", "sidecar")
	cluster.createPod(t, "node-a", "web-1", map[string]string{"app": "web"}, "app")
	cluster.createPod(t, "node-b", "job-0", map[string]string{"app": "job"}, "work")

	p := cluster.startServing(t, "cluster", "--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes)))
	p.waitReady(t)
	cluster.register(t, "cluster", p.port, "v1", "v1beta1")
	for _, version := range []string{"v1", "v1beta1"} {
		eventually(t, time.Minute, "APIService of "+version+" becomes available", func() error {
			return cluster.available(t.Context(), version)
		})
	}
	waitAnswers(t)
	eventually(t, 20*time.Second, "there are metrics of all pods", func() error {
		return wantCount(t.Context(), "/apis/metrics.k8s.io/v1/pods", 3)
	})

	t.Run("raw", testRaw)
	t.Run("typed clients", testTypedClients)
	t.Run("kubectl top", testKubectlTop)
	t.Run("selectors", testSelectors)
	t.Run("pages", testPages)
	t.Run("table", testTable)
	t.Run("encodings", testEncodings)
	t.Run("not found", testNotFound)
	t.Run("discovery", testDiscovery)
	t.Run("OpenAPI", testOpenAPI)
	t.Run("Go client", testGoClient)
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

// wantBothVersions waits until the one node is answered in both versions.
func wantBothVersions(t *testing.T) {
	t.Helper()
	for _, version := range []string{"v1", "v1beta1"} {
		eventually(t, time.Minute, "metrics of "+version, func() error {
			return wantCount(t.Context(), "/apis/metrics.k8s.io/"+version+"/nodes", 1)
		})
	}
}

func testRaw(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1"} {
		for path, want := range map[string]struct {
			kind  string
			names []string
		}{
			"nodes":                   {"NodeMetricsList", []string{"node-a", "node-b"}},
			"pods":                    {"PodMetricsList", []string{"job-0", "web-0", "web-1"}},
			"namespaces/default/pods": {"PodMetricsList", []string{"job-0", "web-0", "web-1"}},
			"namespaces/other/pods":   {"PodMetricsList", nil},
		} {
			body, err := raw(t.Context(), "/apis/metrics.k8s.io/"+version+"/"+path)
			if err != nil {
				t.Errorf("%s of %s: %v", path, version, err)
				continue
			}
			var list metav1.PartialObjectMetadataList
			if err := json.Unmarshal(body, &list); err != nil {
				t.Errorf("%s of %s: decode %s: %v", path, version, body, err)
				continue
			}
			if list.Kind != want.kind || list.APIVersion != "metrics.k8s.io/"+version || list.ResourceVersion == "" {
				t.Errorf("%s of %s is a %s %s at %q", path, version, list.APIVersion, list.Kind, list.ResourceVersion)
			}
			if diff := cmp.Diff(want.names, namesOf(list.Items)); diff != "" {
				t.Errorf("%s of %s (-want +got):\n%s", path, version, diff)
			}
		}
	}
}

func namesOf(items []metav1.PartialObjectMetadata) []string {
	var names []string
	for i := range items {
		names = append(names, items[i].Name)
	}
	return names
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

func testSelectors(t *testing.T) {
	client := newMetricsClient(t, cluster.config)
	tests := map[string]struct {
		options metav1.ListOptions
		want    []string
		wantErr func(error) bool
	}{
		"label":             {options: metav1.ListOptions{LabelSelector: "app=web"}, want: []string{"web-0", "web-1"}},
		"label set":         {options: metav1.ListOptions{LabelSelector: "app in (job,other)"}, want: []string{"job-0"}},
		"no such label":     {options: metav1.ListOptions{LabelSelector: "!app"}},
		"name":              {options: metav1.ListOptions{FieldSelector: "metadata.name=job-0"}, want: []string{"job-0"}},
		"namespace":         {options: metav1.ListOptions{FieldSelector: "metadata.namespace=default"}, want: []string{"job-0", "web-0", "web-1"}},
		"another namespace": {options: metav1.ListOptions{FieldSelector: "metadata.namespace=other"}},
		"an unknown field":  {options: metav1.ListOptions{FieldSelector: "spec.nodeName=node-a"}, wantErr: apierrors.IsBadRequest},
		"not a selector":    {options: metav1.ListOptions{LabelSelector: "a=b=c"}, wantErr: apierrors.IsBadRequest},
		"label and name":    {options: metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "metadata.name=web-1"}, want: []string{"web-1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			list, err := client.MetricsV1().PodMetricses("").List(t.Context(), tc.options)
			if tc.wantErr != nil {
				if !tc.wantErr(err) {
					t.Fatalf("error %v is of another kind", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
}

func testPages(t *testing.T) {
	client := newMetricsClient(t, cluster.config)
	var got []string
	options := metav1.ListOptions{Limit: 1}
	for range 5 {
		list, err := client.MetricsV1beta1().PodMetricses("").List(t.Context(), options)
		if err != nil {
			t.Fatalf("list with continue %q: %v", options.Continue, err)
		}
		if len(list.Items) != 1 {
			t.Fatalf("%d items on a page of one", len(list.Items))
		}
		got = append(got, list.Items[0].Name)
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"job-0", "web-0", "web-1"}, got); diff != "" {
		t.Errorf("all pages (-want +got):\n%s", diff)
	}
	_, err := client.MetricsV1().PodMetricses("").List(t.Context(), metav1.ListOptions{Limit: 1, Continue: "nonsense"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("a token that is none: %v, want BadRequest", err)
	}
	if out, err := cluster.kubectl(t, "get", "pods.metrics.k8s.io", "--chunk-size=1", "-o", "name"); err != nil || strings.Count(out, "\n") != 3 {
		t.Errorf("kubectl in chunks of one: %v\n%s", err, out)
	}
}

// testEncodings asks for each by its media type and decodes the answer.
func testEncodings(t *testing.T) {
	names := func(body []byte) ([]string, error) {
		var list metricsv1.NodeMetricsList
		err := json.Unmarshal(body, &list)
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names, err
	}
	tests := map[string]func([]byte) ([]string, error){
		runtime.ContentTypeJSON: names,
		runtime.ContentTypeYAML: func(body []byte) ([]string, error) {
			if !strings.HasPrefix(string(body), "apiVersion: metrics.k8s.io/v1\n") {
				return nil, fmt.Errorf("not YAML: %s", body)
			}
			return []string{"node-a", "node-b"}, nil
		},
		runtime.ContentTypeProtobuf: func(body []byte) ([]string, error) {
			var envelope runtime.Unknown
			if err := envelope.Unmarshal(body[4:]); err != nil {
				return nil, err
			}
			var list metricsv1.NodeMetricsList
			if err := list.Unmarshal(envelope.Raw); err != nil {
				return nil, err
			}
			return []string{list.Items[0].Name, list.Items[1].Name}, nil
		},
		runtime.ContentTypeCBOR: func(body []byte) ([]string, error) {
			var list metricsv1.NodeMetricsList
			scheme := runtime.NewScheme()
			if err := metricsv1.AddToScheme(scheme); err != nil {
				return nil, err
			}
			_, _, err := cbor.NewSerializer(scheme, scheme).Decode(body, nil, &list)
			if err != nil {
				return nil, err
			}
			return []string{list.Items[0].Name, list.Items[1].Name}, nil
		},
	}
	for mediaType, decode := range tests {
		t.Run(mediaType, func(t *testing.T) {
			result := cluster.client.Discovery().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1/nodes").SetHeader("Accept", mediaType).Do(t.Context())
			var got string
			body, err := result.ContentType(&got).Raw()
			if err != nil {
				t.Fatalf("get: %v", err)
			}
			if got != mediaType {
				t.Errorf("answered with %s", got)
			}
			nodes, err := decode(body)
			if err != nil {
				t.Fatalf("decode: %v", err)
			}
			if diff := cmp.Diff([]string{"node-a", "node-b"}, nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func testNotFound(t *testing.T) {
	client := newMetricsClient(t, cluster.config)
	if _, err := client.MetricsV1().PodMetricses(workloads).Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that does not exist: %v, want NotFound", err)
	}
	if _, err := client.MetricsV1beta1().NodeMetricses().Get(t.Context(), "absent", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a node that does not exist: %v, want NotFound", err)
	}
	if _, err := raw(t.Context(), "/apis/metrics.k8s.io/v1/services"); !apierrors.IsNotFound(err) {
		t.Errorf("a resource that does not exist: %v, want NotFound", err)
	}
}

// testDiscovery reads the aggregated document, in which a version that cannot be
// fetched is Stale.
// testAccess asks with accounts of different rights, both ways.
// testOwnEndpoints asks the process for what kube-apiserver does not proxy.
