// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"encoding/json"
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
	watcher, err := client.Pods(config, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = watcher.Run(t.Context()) }()
	if err := watcher.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	stock := metrics.NewRESTMetricsClient(api, nil, nil)
	ours := metrics.NewRESTMetricsClient(snapshotLister{api, watcher}, nil, nil)

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
		"every namespace":                  {corev1.ResourceCPU, "", "app=web", "", 4, ""}, // by name: one hides another
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

// Before anything was heard, no metrics are an error that says why, as it is with the stock client.
func TestSnapshotBeforeFirstList(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the store is empty", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	watcher, err := client.Pods(config, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api, err := resourceclient.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lister := snapshotLister{api, watcher}
	list := func() error {
		_, err := lister.PodMetricses("shop").List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); err == nil || !strings.Contains(err.Error(), "not listed yet") {
		t.Errorf("before Run: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- watcher.Run(ctx) }()
	for watcher.Status().Err == nil {
		time.Sleep(time.Millisecond)
	}
	if err := list(); err == nil || !strings.Contains(err.Error(), "unable to handle the request") {
		t.Errorf("while the API fails: %v", err)
	}
	cancel()
	<-ended
}

// What the snapshot cannot answer is refused, and not answered with too much.
func TestSnapshotRefuses(t *testing.T) {
	for name, options := range map[string]metav1.ListOptions{
		"field selector": {FieldSelector: "metadata.name=a"},
		"no selector":    {LabelSelector: "a in"},
	} {
		t.Run(name, func(t *testing.T) {
			pods := snapshotPods{watcher: &fakeWatcher{}}
			if list, err := pods.List(t.Context(), options); err == nil {
				t.Errorf("answered %v", list)
			}
		})
	}
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
