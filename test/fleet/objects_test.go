// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestNodeObject(t *testing.T) {
	f, _ := newFleet(t, Options{Nodes: 2, PodsPerNode: 1})
	start(t, f)
	n := f.Nodes()[1]
	node := f.NodeObject(n)
	if node.Name != n.Name || node.Labels[corev1.LabelHostname] != n.Name {
		t.Errorf("name %s, labels %v", node.Name, node.Labels)
	}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: n.Name}}
	if diff := cmp.Diff(addresses, node.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if port := node.Status.DaemonEndpoints.KubeletEndpoint.Port; port != int32(n.address.Port()) || port == 0 {
		t.Errorf("port %d, listens at %s", port, n.address)
	}
}

func TestPodObject(t *testing.T) {
	f, _ := newFleet(t, Options{PodsPerNode: 2, ContainersPerPod: 3})
	start(t, f)
	n := f.Nodes()[0]
	p := n.Pods()[0]
	pod := f.PodObject(p, n)
	if pod.Namespace != p.Namespace || pod.Name != p.Name || pod.Spec.NodeName != n.Name || pod.Labels["app"] == "" {
		t.Errorf("pod %s/%s on %s, labels %v", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Labels)
	}
	var spec, status []string
	for i, c := range pod.Spec.Containers {
		spec, status = append(spec, c.Name), append(status, pod.Status.ContainerStatuses[i].Name)
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			t.Errorf("%s requests %v", c.Name, c.Resources.Requests)
		}
	}
	want := []string{"app", "proxy", "logger"}
	if diff := cmp.Diff([][]string{want, want}, [][]string{spec, status}); diff != "" {
		t.Errorf("containers and their statuses (-want +got):\n%s", diff)
	}
	if pod.Status.Phase != corev1.PodRunning || !pod.Status.StartTime.Time.Equal(p.Start) {
		t.Errorf("phase %s, started %v", pod.Status.Phase, pod.Status.StartTime)
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
