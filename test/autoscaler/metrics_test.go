// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	fakemetrics "k8s.io/metrics/pkg/client/clientset/versioned/fake"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// Whatever the controller asks, the snapshot has the stock client say what the API has it say. The server is one, and
// both clients are real.
func TestSameAsStockClient(t *testing.T) {
	server := httptest.NewServer(podMetricsAPI{
		pod("other", "web-1", "app=web", 6, container("web", "900m", "90Mi")),
		pod("shop", "bare", "", 5, container("web", "1", "1Gi")),
		pod("shop", "web-1", "app=web", 0, container("web", "100m", "10Mi"), container("proxy", "20m", "5Mi")),
		pod("shop", "web-2", "app=web", 1, container("proxy", "33500u", "5Mi")),
		pod("shop", "web-3", "app=web", 2),
		pod("shop", "web-4", "app=web", 3, container("web", "1", ""), container("proxy", "1", "1Gi")),
		pod("shop", "web-5", "app=web,canary=yes", -9, container("web", "7n", "1")),
	})
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	api, err := resourceclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lister := startLister(t, config, api)
	stock := metrics.NewRESTMetricsClient(api, nil, nil)
	ours := metrics.NewRESTMetricsClient(lister, nil, nil)

	for name, c := range map[string]struct {
		resource            corev1.ResourceName
		namespace, selector string
		container           string
		pods                int // that have a figure
		err                 string
	}{
		"totals of containers":             {corev1.ResourceCPU, "shop", "app=web", "", 4, ""},
		"a resource that a container lost": {corev1.ResourceMemory, "shop", "app=web", "", 3, ""},
		"one container":                    {corev1.ResourceCPU, "shop", "app=web", "web", 3, ""},
		"one container's lost resource":    {corev1.ResourceMemory, "shop", "app=web", "web", 2, ""},
		"a container nobody has":           {corev1.ResourceCPU, "shop", "app=web", "db", 0, ""},
		"a resource nobody has":            {corev1.ResourceStorage, "shop", "app=web", "", 0, ""},
		"selector of sets":                 {corev1.ResourceCPU, "shop", "app in (web,db),!canary", "", 3, ""},
		"every pod of a namespace":         {corev1.ResourceCPU, "shop", "", "", 5, ""},
		"another namespace":                {corev1.ResourceCPU, "other", "app=web", "", 1, ""},
		"no such namespace":                {corev1.ResourceCPU, "none", "app=web", "", 0, "no metrics returned"},
		"no such label":                    {corev1.ResourceCPU, "shop", "app=db", "", 0, "no metrics returned"},
	} {
		t.Run(name, func(t *testing.T) {
			selector, err := labels.Parse(c.selector)
			if err != nil {
				t.Fatal(err)
			}
			want, wantAt, wantErr := stock.GetResourceMetric(t.Context(), c.resource, c.namespace, selector, c.container)
			got, at, err := ours.GetResourceMetric(t.Context(), c.resource, c.namespace, selector, c.container)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("figures: -stock +ours\n%s", diff)
			}
			if !at.Equal(wantAt) {
				t.Errorf("timestamp %v, the stock client has %v", at, wantAt)
			}
			if diff := cmp.Diff(message(wantErr), message(err)); diff != "" {
				t.Errorf("error: -stock +ours\n%s", diff)
			}
			// Two that are wrong alike are no success.
			if len(got) != c.pods || !strings.Contains(message(err), c.err) || (c.err == "") != (err == nil) {
				t.Errorf("%d pods, error %v; want %d pods, error %q", len(got), err, c.pods, c.err)
			}
		})
	}
}

// What the snapshot cannot answer is an error that says why, and no answer with too little or too much.
func TestSnapshotRefuses(t *testing.T) {
	synced := client.Status{Synced: true}
	for name, c := range map[string]struct {
		status    client.Status
		namespace string
		options   metav1.ListOptions
		err       string
	}{
		"nothing was tried yet":   {client.Status{}, "shop", metav1.ListOptions{}, "not listed yet"},
		"nothing was heard yet":   {client.Status{Err: errors.New("the API is down")}, "shop", metav1.ListOptions{}, "not listed yet: the API is down"},
		"field selector":          {synced, "shop", metav1.ListOptions{FieldSelector: "metadata.name=a"}, "ask the API"},
		"every namespace":         {synced, "", metav1.ListOptions{}, "ask the API"},
		"selector cannot be read": {synced, "shop", metav1.ListOptions{LabelSelector: "a in"}, `label selector "a in"`},
	} {
		t.Run(name, func(t *testing.T) {
			lister := snapshotLister{fakemetrics.NewSimpleClientset().MetricsV1beta1(), &fakeWatcher{status: c.status}}
			list, err := lister.PodMetricses(c.namespace).List(t.Context(), c.options)
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("answered %v, %v", list, err)
			}
		})
	}
}

// The first answer has all pods of the API, though nobody has read a change yet.
func TestSnapshotIsCompleteAtOnce(t *testing.T) {
	var pods podMetricsAPI
	for i := range 500 {
		pods = append(pods, pod("shop", fmt.Sprintf("web-%03d", i), "app=web", 1, container("web", "100m", "10Mi")))
	}
	server := httptest.NewServer(pods)
	defer server.Close()
	watcher, err := client.Pods(&rest.Config{Host: server.URL}, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }() // nobody reads Changes
	if err := watcher.WaitForSync(ctx); err != nil {
		t.Fatal(err)
	}
	lister := snapshotLister{fakemetrics.NewSimpleClientset().MetricsV1beta1(), watcher}
	list, err := lister.PodMetricses("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(list.Items) != len(pods) {
		t.Errorf("%d pods of %d, %v", len(list.Items), len(pods), err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// startLister returns a lister that has taken in the first list.
func startLister(t testing.TB, config *rest.Config, api resourceclient.PodMetricsesGetter) snapshotLister {
	t.Helper()
	watcher, err := client.Pods(config, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return snapshotLister{api, watcher}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// pod has metrics whose sample is some seconds after the epoch.
func pod(namespace, name, withLabels string, seconds int, containers ...metricsv1.ContainerMetrics) *metricsv1.PodMetrics {
	set, err := labels.ConvertSelectorToLabelsMap(withLabels)
	if err != nil {
		panic(err)
	}
	return &metricsv1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: set},
		Timestamp:  metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second)),
		Window:     metav1.Duration{Duration: time.Duration(10+seconds) * time.Second},
		Containers: containers,
	}
}

func container(name, cpu, memory string) metricsv1.ContainerMetrics {
	usage := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	if memory != "" {
		usage[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return metricsv1.ContainerMetrics{Name: name, Usage: usage}
}

// podMetricsAPI lists pods, sorted, in both versions, and has no watch, like metrics-server.
type podMetricsAPI []*metricsv1.PodMetrics

func (pods podMetricsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/apis/metrics.k8s.io/")
	version, path, isList := strings.Cut(path, "/")
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if !ok || err != nil {
		http.Error(w, r.URL.String(), http.StatusBadRequest)
		return
	}
	typeOf := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{Kind: kind, APIVersion: "metrics.k8s.io/" + version}
	}
	var answer any = metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: "metrics.k8s.io/" + version,
		APIResources: []metav1.APIResource{{Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: []string{"get", "list"}}},
	}
	if isList {
		namespace := strings.TrimSuffix(strings.TrimPrefix(path, "namespaces/"), "/pods")
		list := metricsv1.PodMetricsList{TypeMeta: typeOf("PodMetricsList"), Items: []metricsv1.PodMetrics{}}
		for _, pod := range pods {
			if (path == "pods" || pod.Namespace == namespace) && selector.Matches(labels.Set(pod.Labels)) {
				list.Items = append(list.Items, *pod)
			}
		}
		answer = list
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// BenchmarkGetResourceMetric is what a decision costs in a cluster of 30,000 pods, of which an HPA has 30.
func BenchmarkGetResourceMetric(b *testing.B) {
	var pods podMetricsAPI
	for i := range 30_000 {
		namespace := fmt.Sprintf("ns-%04d", i/30)
		pods = append(pods, pod(namespace, fmt.Sprintf("web-%05d", i), "app=web", i%10, container("web", "100m", "10Mi"), container("proxy", "20m", "5Mi")))
	}
	server := httptest.NewServer(pods)
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	api, err := resourceclient.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	lister := startLister(b, config, api)
	ours := metrics.NewRESTMetricsClient(lister, nil, nil)
	selector := labels.SelectorFromSet(labels.Set{"app": "web"})
	b.ReportAllocs()
	for b.Loop() {
		if got, _, err := ours.GetResourceMetric(b.Context(), corev1.ResourceCPU, "ns-0500", selector, ""); err != nil || len(got) != 30 {
			b.Fatal(len(got), err)
		}
	}
}
