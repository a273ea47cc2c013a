// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package plugincluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// Now is the time at the cluster.
var Now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// World is the state of a cluster and of its metrics API.
type World struct {
	Now time.Time
	// NoKind: the CRD is not installed.
	NoKind      bool
	Backends    []v1alpha1.MetricsBackend
	APIServices []apiregistrationv1.APIService
	Autoscalers []autoscalingv2.HorizontalPodAutoscaler
	// Nodes are the names of Nodes; those in VirtualNodes have the label type=virtual.
	Nodes, VirtualNodes []string
	// Pods are the running pods.
	Pods []corev1.Pod
	// Current, Stale and Group are the versions in the two discovery documents; the
	// first of Group is the preferred one.
	Current, Stale, Group []string
	// Served are the versions that the implementation serves.
	Served map[string]*Data
	// Others are the resources of versions of other groups, by GROUP/VERSION; the
	// aggregated discovery does not list those of Unlisted.
	Others   map[string][]string
	Unlisted []string
	// Metrics is the body of /metrics.
	Metrics string
	// Codes are the status codes of paths that fail.
	Codes map[string]int
	// Apply is called with each object that is applied server-side, and may change the world. It returns the field managers
	// with which it conflicts.
	Apply func(object *unstructured.Unstructured) []string
	// Write is called with each other patch and each deletion, as METHOD PATH BODY, and may change the world. It returns a status code.
	Write func(request string) int
	// Hanging are paths that get no response.
	Hanging []string
}

// Data holds the responses of a version of metrics.k8s.io.
type Data struct {
	Resources []string
	// Nodes and Pods are sample times by name, pods as NAMESPACE/NAME.
	Nodes, Pods map[string]time.Time
	// CPU is the usage of every node.
	CPU string
}

// Healthy returns a cluster whose backend serves v1 and v1beta1, with two nodes.
func Healthy(ca []byte) *World {
	data := func() *Data {
		return &Data{
			Resources: []string{"nodes", "pods"}, CPU: "250m",
			Nodes: map[string]time.Time{"node-a": Now.Add(-10 * time.Second), "node-b": Now.Add(-14 * time.Second)},
			Pods:  map[string]time.Time{"default/web-0": Now.Add(-9 * time.Second)},
		}
	}
	return &World{
		Now:         Now,
		Backends:    []v1alpha1.MetricsBackend{*Backend("cluster")},
		APIServices: []apiregistrationv1.APIService{*APIService("v1", "cluster", ca), *APIService("v1beta1", "cluster", ca)},
		Autoscalers: []autoscalingv2.HorizontalPodAutoscaler{*Autoscaler("web", corev1.ConditionTrue, "ValidMetricFound", "the HPA was able to calculate a replica count")},
		Nodes:       []string{"node-a", "node-b"},
		Pods:        []corev1.Pod{Pod("default/web-0", "node-a", time.Hour)},
		Current:     []string{"v1", "v1beta1"},
		Group:       []string{"v1", "v1beta1"},
		Served:      map[string]*Data{"v1": data(), "v1beta1": data()},
		Metrics: `# HELP aggregator_unavailable_apiservice [BETA] Gauge of APIServices which are marked as unavailable.
# TYPE aggregator_unavailable_apiservice gauge
aggregator_unavailable_apiservice{name="v1.metrics.k8s.io"} 0
aggregator_unavailable_apiservice{name="v1beta1.metrics.k8s.io"} 0
# TYPE aggregator_unavailable_apiservice_total counter
aggregator_unavailable_apiservice_total{name="v1.metrics.k8s.io",reason="MissingEndpoints"} 3
# TYPE apiserver_request_terminations_total counter
apiserver_request_terminations_total{code="503",component="aggregator",group="metrics.k8s.io"} 2
apiserver_request_terminations_total{code="429",component="apiserver",group=""} 7
`,
		Codes: map[string]int{},
	}
}

// MetricsServer returns a cluster without the operator's CRD, with metrics-server's
// stock manifest.
func MetricsServer() *World {
	w := Healthy(nil)
	w.NoKind, w.Backends = true, nil
	service := APIService("v1beta1", "", nil)
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)}
	service.Spec.InsecureSkipTLSVerify = true
	w.APIServices = []apiregistrationv1.APIService{*service}
	w.Current, w.Group = []string{"v1beta1"}, []string{"v1beta1"}
	delete(w.Served, "v1")
	return w
}

// Backend returns a MetricsBackend whose components match its spec.
func Backend(name string) *v1alpha1.MetricsBackend {
	condition := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: 3, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(Now.Add(-time.Hour)),
		}
	}
	versions := []string{"v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"}
	pod := func(name string) v1alpha1.ServingPodStatus {
		return v1alpha1.ServingPodStatus{Name: name, Image: "metrics-backend/serving:v0.1.0", Ready: true, UpToDate: true, Versions: versions}
	}
	return &v1alpha1.MetricsBackend{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MetricsBackend"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3, ResourceVersion: "7"},
		Spec:       v1alpha1.MetricsBackendSpec{ResourceMetrics: &v1alpha1.ResourceMetricsSpec{}},
		Status: v1alpha1.MetricsBackendStatus{
			ObservedGeneration: 3,
			RegisteredVersions: "v1, v1beta1",
			Conditions: []metav1.Condition{
				condition(v1alpha1.ConditionStaleAPIServicesRemoved, "Succeeded", "only desired versions are in discovery"),
				condition(v1alpha1.ConditionCertificatesValid, "Succeeded", "the serving certificate is valid"),
				condition(v1alpha1.ConditionServingReady, "Succeeded", "2 of 2 pods are up to date and ready"),
				condition(v1alpha1.ConditionAPIServicesRegistered, "Succeeded", "v1.metrics.k8s.io, v1beta1.metrics.k8s.io registered"),
				condition(v1alpha1.ConditionAvailable, "Succeeded", "v1 and v1beta1 answer with fresh samples"),
				condition(v1alpha1.ConditionSourcesHealthy, "Succeeded", "all kubelets answer"),
				condition(v1alpha1.ConditionConsumersCompatible, "Succeeded", "no version is about to go"),
				condition(v1alpha1.ConditionReady, "Succeeded", "all components match the spec"),
			},
			APIServices: []v1alpha1.APIServiceStatus{
				{Name: versions[0], State: v1alpha1.APIServiceAvailable}, {Name: versions[1], State: v1alpha1.APIServiceAvailable},
			},
			Consumers: []v1alpha1.ConsumerStatus{
				{Version: "v1.metrics.k8s.io", UserAgent: "kubectl", User: "alice", LastSeen: "2026-11-20"},
				{Version: "v1beta1.metrics.k8s.io", UserAgent: "kube-controller-manager", User: "system:serviceaccount:kube-system:horizontal-pod-autoscaler", LastSeen: "2026-11-21"},
			},
			Serving: &v1alpha1.ServingStatus{
				Image: "metrics-backend/serving:v0.1.0", Namespace: "metrics-backend-system",
				Replicas: 2, ReadyReplicas: 2, Summary: "2/2",
				CertificateNotAfter: ptr.To(metav1.NewTime(Now.Add(80 * 24 * time.Hour))),
				Pods:                []v1alpha1.ServingPodStatus{pod("metrics-serving-cluster-5d8-abcde"), pod("metrics-serving-cluster-5d8-fghij")},
			},
		},
	}
}

// APIService returns one that kube-apiserver reports available; without a backend, it is
// someone else's.
func APIService(version, backend string, ca []byte) *apiregistrationv1.APIService {
	return APIServiceOf("metrics.k8s.io", version, backend, ca)
}

// APIServiceOf is APIService for any group.
func APIServiceOf(group, version, backend string, ca []byte) *apiregistrationv1.APIService {
	service := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: version + "." + group, ResourceVersion: "7"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, CABundle: ca,
			Service: &apiregistrationv1.ServiceReference{
				Namespace: "metrics-backend-system", Name: "metrics-serving-cluster", Port: ptr.To[int32](443),
			},
		},
	}
	if backend != "" {
		service.Labels = map[string]string{v1alpha1.LabelBackend: backend}
	}
	SetAvailable(service, true, "Passed", "all checks passed")
	return service
}

// SetAvailable sets the condition Available.
func SetAvailable(service *apiregistrationv1.APIService, available bool, reason, message string) {
	status := apiregistrationv1.ConditionFalse
	if available {
		status = apiregistrationv1.ConditionTrue
	}
	service.Status.Conditions = []apiregistrationv1.APIServiceCondition{
		{Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: message},
	}
}

// Pod returns a running pod on a node, NAMESPACE/NAME, whose container has run for a time.
func Pod(name, node string, since time.Duration) corev1.Pod {
	namespace, name, _ := strings.Cut(name, "/")
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(Now.Add(-since))}}},
		}},
	}
}

// Autoscaler returns one that scales by CPU, with that condition ScalingActive.
func Autoscaler(name string, active corev1.ConditionStatus, reason, message string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType}},
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
				{Type: autoscalingv2.ScalingActive, Status: active, Reason: reason, Message: message},
			},
		},
	}
}

// Condition changes a condition of the first backend, or adds it.
func (w *World) Condition(kind string, status metav1.ConditionStatus, reason, message string) {
	conditions := &w.Backends[0].Status.Conditions
	changed := metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: w.Backends[0].Generation, LastTransitionTime: metav1.NewTime(w.Now),
	}
	if i := slices.IndexFunc(*conditions, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		(*conditions)[i] = changed
		return
	}
	*conditions = append(*conditions, changed)
}

// Unregister removes the APIService of a version, and the version from discovery and /metrics.
func (w *World) Unregister(version string) {
	is := func(v string) bool { return v == version }
	w.APIServices = slices.DeleteFunc(w.APIServices, func(s apiregistrationv1.APIService) bool { return s.Spec.Version == version })
	w.Current = slices.DeleteFunc(w.Current, is)
	w.Group = slices.DeleteFunc(w.Group, is)
	series := fmt.Sprintf("aggregator_unavailable_apiservice{name=%q} 0\n", version+".metrics.k8s.io")
	w.Metrics = strings.ReplaceAll(w.Metrics, series, "")
}
