// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

func TestNodeObject(t *testing.T) {
	for name, test := range map[string]struct {
		options     Options
		annotations map[string]string
	}{
		"plain":        {Options{Nodes: 2, PodsPerNode: 1}, nil},
		"another path": {Options{Nodes: 2, PodsPerNode: 1, MetricsPath: "/m"}, map[string]string{"metrics.k8s.io/resource-metrics-path": "/m"}},
		"another name": {Options{Nodes: 2, PodsPerNode: 1, Name: "second"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := newFleet(t, test.options)
			start(t, f)
			n := f.Nodes()[1]
			node := f.NodeObject(n)
			if diff := cmp.Diff(test.annotations, node.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			if node.Name != n.Name || node.Labels[corev1.LabelHostname] != n.Name || node.Labels[FleetLabel] != f.Options().Name {
				t.Errorf("name %s, labels %v", node.Name, node.Labels)
			}
			addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: n.Name}}
			if diff := cmp.Diff(addresses, node.Status.Addresses); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
			if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port != int32(n.Address().Port()) || port == 0 {
				t.Errorf("port %d, listens at %s", port, n.Address())
			}
			conditions := map[corev1.NodeConditionType]corev1.ConditionStatus{}
			for _, c := range node.Status.Conditions {
				conditions[c.Type] = c.Status
			}
			want := map[corev1.NodeConditionType]corev1.ConditionStatus{
				"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False",
			}
			if diff := cmp.Diff(want, conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
				t.Errorf("taints %v", node.Spec.Taints)
			}
		})
	}
}

func TestPodObject(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 2, ContainersPerPod: 3})
	start(t, f)
	n := f.Nodes()[0]
	change, err := f.Restart(n.Pods()[0].Key())
	if err != nil {
		t.Fatal(err)
	}
	pod := f.PodObject(change.Pod, n)
	if pod.Namespace != change.Pod.Namespace || pod.Name != change.Pod.Name || pod.Spec.NodeName != n.Name {
		t.Errorf("pod %s/%s on %s", pod.Namespace, pod.Name, pod.Spec.NodeName)
	}
	if pod.Labels[FleetLabel] != "fleet" || pod.Labels["app"] == "" || pod.Labels["tier"] == "" {
		t.Errorf("labels %v", pod.Labels)
	}
	var inSpec []string
	for _, c := range pod.Spec.Containers {
		inSpec = append(inSpec, c.Name)
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s requests %v", c.Name, c.Resources.Requests)
		}
	}
	if diff := cmp.Diff([]string{"app", "proxy", "logger"}, inSpec); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
	type status struct {
		name      string
		restarts  int32
		started   metav1.Time
		readiness *bool
	}
	var want, got []status
	for i, c := range pod.Status.ContainerStatuses {
		want = append(want, status{inSpec[i], 1, metav1.NewTime(epoch), ptr.To(true)})
		got = append(got, status{c.Name, c.RestartCount, c.State.Running.StartedAt, c.Started})
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(status{})); diff != "" {
		t.Errorf("container statuses (-want +got):\n%s", diff)
	}
	if pod.Status.Phase != corev1.PodRunning || !pod.Status.StartTime.Time.Equal(change.Pod.Start) {
		t.Errorf("phase %s, started %v", pod.Status.Phase, pod.Status.StartTime)
	}
	ready := false
	for _, c := range pod.Status.Conditions {
		ready = ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && c.LastTransitionTime.Time.Equal(epoch)
	}
	if !ready {
		t.Errorf("conditions %v, want Ready since the restart", pod.Status.Conditions)
	}
	tolerant := false
	for _, toleration := range pod.Spec.Tolerations {
		tolerant = tolerant || toleration.ToleratesTaint(klog.Background(), &corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}, false)
	}
	if !tolerant {
		t.Error("the pod would be evicted from a node without heartbeats")
	}
}

// 30,000 pods are to be spread so that a namespace holds a tenth, and a label
// selects a third of those.
func TestPodsAreSpread(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 100})
	byNamespace, tiers := map[string]int{}, map[string]int{}
	for _, n := range f.Nodes() {
		for _, p := range n.Pods() {
			byNamespace[p.Namespace]++
			if p.Namespace == "fleet-03" && labels.SelectorFromSet(labels.Set{"tier": "backend"}).Matches(labels.Set(p.Labels)) {
				tiers["backend"]++
			}
		}
	}
	want := map[string]int{}
	for _, namespace := range f.Namespaces() {
		want[namespace] = 300
	}
	if diff := cmp.Diff(want, byNamespace); diff != "" {
		t.Errorf("pods by namespace (-want +got):\n%s", diff)
	}
	if tiers["backend"] != 100 {
		t.Errorf("a label selects %d of 300 pods, want a third", tiers["backend"])
	}
}
