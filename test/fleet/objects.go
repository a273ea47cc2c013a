// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// fleetLabel is on each node and pod.
	fleetLabel = "fleet.metricsbackend.io/name"

	kubeletVersion = "v1.37.1"
	image          = "registry.k8s.io/pause:3.10"
)

// NodeObject is the Node that announces the kubelet: its address and port, and
// Ready. The fleet must have been started.
func (f *Fleet) NodeObject(n *Node) *corev1.Node {
	since := metav1.NewTime(n.boot)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name,
			Labels: map[string]string{
				fleetLabel:               "fleet",
				corev1.LabelHostname:     n.Name,
				corev1.LabelOSStable:     "linux",
				corev1.LabelArchStable:   "amd64",
				corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", n.index%3),
			},
		},
		Spec: corev1.NodeSpec{ProviderID: "fleet://" + n.Name},
		Status: corev1.NodeStatus{
			Capacity:    nodeCapacity(),
			Allocatable: nodeCapacity(),
			Conditions: []corev1.NodeCondition{
				nodeCondition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", since),
				nodeCondition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", since),
				nodeCondition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", since),
				nodeCondition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", since),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: n.address.Addr().String()},
				{Type: corev1.NodeHostName, Address: n.Name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(n.address.Port())}},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture: "amd64", OperatingSystem: "linux", OSImage: "fleet",
				KubeletVersion: kubeletVersion, ContainerRuntimeVersion: "fleet://1.0",
			},
		},
	}
}

func nodeCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("250"),
	}
}

func nodeCondition(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string, since metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: "a fake kubelet of test/fleet",
		LastHeartbeatTime: since, LastTransitionTime: since,
	}
}

// PodObject is the Pod as it runs on that node: bound, Running and Ready.
func (f *Fleet) PodObject(p *Pod, n *Node) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace,
			Name:      p.Name,
			Labels:    map[string]string{fleetLabel: "fleet"},
		},
		Spec: corev1.PodSpec{
			NodeName:                      n.Name,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To[int64](0),
		},
		Status: f.podStatus(p, n),
	}
	for key, value := range p.Labels {
		pod.Labels[key] = value
	}
	for _, c := range p.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name:  c.Name,
			Image: image,
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewMilliQuantity(max(1, int64(c.load.mean*1000)), resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(int64(c.memory.mean), resource.BinarySI),
			}},
		})
	}
	return pod
}

func (f *Fleet) podStatus(p *Pod, n *Node) corev1.PodStatus {
	start := metav1.NewTime(p.Start)
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    n.address.Addr().String(),
		StartTime: &start,
		QOSClass:  corev1.PodQOSBurstable,
	}
	for _, c := range p.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name:        c.Name,
			Image:       image,
			ContainerID: fmt.Sprintf("fleet://%016x-0", digest(c.cadence.seed, n.Name)),
			Ready:       true,
			Started:     ptr.To(true),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Start)}},
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: start})
	}
	return status
}
