// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery/cached/memory"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/restmapper"
	fakescale "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	fakemetrics "k8s.io/metrics/pkg/client/clientset/versioned/fake"
	"k8s.io/metrics/pkg/client/custom_metrics"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// scenario is a cluster for the real controller, in the time of a synctest bubble: moments are what they ought to be.
// Each pod asks for 100m of CPU.
type scenario struct {
	watcher *fakeWatcher // of what polling finds, too
	core    *fake.Clientset
	began   time.Time

	mu        sync.Mutex
	replicas  map[string]int32 // of Deployments, by name
	decisions []string         // "7.5s web: 3", of each change of a scale
}

// run runs a test in a bubble beside an autoscaler, from a moment at which it has once decided on each HPA that 50m of
// CPU want no change. There is a data point from the beginning: where the controller reports an error, apimachinery
// slows it down by the time that went by since the process began, which in a bubble is decades.
func (s *scenario) run(t *testing.T, watch bool, hpas []*autoscalingv2.HorizontalPodAutoscaler, test func()) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.began, s.replicas = time.Now(), map[string]int32{}
		s.watcher = &fakeWatcher{
			status:  client.Status{Synced: true},
			changes: make(chan client.Change[metricsv1.PodMetrics], 100), pods: map[string]*metricsv1.PodMetrics{},
		}
		var objects []runtime.Object
		for _, hpa := range hpas {
			s.replicas[hpa.Spec.ScaleTargetRef.Name] = 1
			objects = append(objects, hpa, runningPod(hpa.Spec.ScaleTargetRef.Name+"-0", s.began))
			s.point(hpa.Spec.ScaleTargetRef.Name, "50m")
		}
		s.core = fake.NewClientset(objects...)
		discovery := s.core.Discovery().(*fakediscovery.FakeDiscovery)
		discovery.Resources = []*metav1.APIResourceList{{
			GroupVersion: "apps/v1",
			APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment", Namespaced: true}},
		}}
		ctx, cancel := context.WithCancel(t.Context())
		var watcher podWatcher
		if watch {
			watcher = s.watcher
		}
		a, err := assemble(ctx, clients{
			core:   s.core,
			mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
			scale:  s.scales(),
			// Where metrics come by watch nobody asks it.
			resource:       snapshotLister{fakemetrics.NewSimpleClientset().MetricsV1beta1(), s.watcher},
			customVersions: custom_metrics.NewAvailableAPIsGetter(discovery),
		}, watcher, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { a.Run(ctx) })
		s.at(time.Second)
		test()
		cancel()
		running.Wait()
	})
}

func (s *scenario) scales() *fakescale.FakeScaleClient {
	scales := &fakescale.FakeScaleClient{}
	scales.AddReactor("get", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		s.mu.Lock()
		defer s.mu.Unlock()
		return true, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       autoscalingv1.ScaleSpec{Replicas: s.replicas[name]},
			Status:     autoscalingv1.ScaleStatus{Replicas: s.replicas[name], Selector: "app=" + name},
		}, nil
	})
	scales.AddReactor("update", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
		updated := action.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.replicas[updated.Name] = updated.Spec.Replicas
		// The controller looks each 100 ms whether its caches have synced, so it begins at 0 s or 0.1 s.
		moment := time.Since(s.began).Truncate(500 * time.Millisecond)
		s.decisions = append(s.decisions, fmt.Sprintf("%v %s: %d", moment, updated.Name, updated.Spec.Replicas))
		return true, updated, nil
	})
	return scales
}

// at waits for a moment of the test.
func (s *scenario) at(after time.Duration) {
	time.Sleep(time.Until(s.began.Add(after)))
	synctest.Wait()
}

// decided returns the decisions so far, those of one moment by name.
func (s *scenario) decided() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.decisions)
	return slices.Clone(s.decisions)
}

// point has a data point arrive of the one pod of a Deployment that has metrics.
func (s *scenario) point(name, cpu string) {
	change := client.Change[metricsv1.PodMetrics]{Type: client.Updated, Object: &metricsv1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name + "-0", Labels: map[string]string{"app": name}},
		Timestamp:  metav1.Now(),
		Window:     metav1.Duration{Duration: 10 * time.Second},
		Containers: []metricsv1.ContainerMetrics{container("main", cpu, "1Mi")},
	}}
	s.watcher.take(change)
}

func runningPod(name string, now time.Time) *corev1.Pod {
	app, _, _ := strings.Cut(name, "-")
	long := metav1.NewTime(now.Add(-time.Hour))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name:      "main",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &long,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: long}},
		},
	}
}

// hpa wants a Deployment at half of the CPU that its pods ask for.
func hpa(target string) *autoscalingv2.HorizontalPodAutoscaler {
	half := int32(50)
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "scales-" + target, ResourceVersion: "1"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			MaxReplicas:    10,
			Metrics: []autoscalingv2.MetricSpec{{
				Type: autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{
					Name:   corev1.ResourceCPU,
					Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &half},
				},
			}},
		},
	}
}

// fakeWatcher holds pods of the namespace shop, and tells of them.
type fakeWatcher struct {
	status  client.Status
	changes chan client.Change[metricsv1.PodMetrics]

	mu   sync.Mutex
	pods map[string]*metricsv1.PodMetrics
}

func (f *fakeWatcher) take(change client.Change[metricsv1.PodMetrics]) {
	f.mu.Lock()
	f.pods[change.Object.Name] = change.Object
	f.mu.Unlock()
	f.changes <- change
}

func (f *fakeWatcher) Run(ctx context.Context) error { <-ctx.Done(); close(f.changes); return nil }

func (f *fakeWatcher) Changes() <-chan client.Change[metricsv1.PodMetrics] { return f.changes }

func (f *fakeWatcher) Status() client.Status { return f.status }

func (f *fakeWatcher) List(string) []*metricsv1.PodMetrics {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.pods))
}
