// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestRolloutFinished(t *testing.T) {
	t.Parallel()
	done := appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	with := func(change func(*appsv1.DeploymentStatus)) appsv1.DeploymentStatus {
		status := done
		change(&status)
		return status
	}
	cases := map[string]struct {
		status  appsv1.DeploymentStatus
		applied int64
		want    bool
	}{
		"done":                            {status: done, applied: 3, want: true},
		"nothing was applied":             {status: done, want: true},
		"the cache is behind the apply":   {status: done, applied: 4},
		"not looked at by its controller": {status: with(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 2 }), applied: 3},
		"an old pod is left":              {status: with(func(s *appsv1.DeploymentStatus) { s.Replicas = 3 }), applied: 3},
		"a pod is of the old revision":    {status: with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }), applied: 3},
		"a pod is not available":          {status: with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 1 }), applied: 3},
		"nothing was ever written by it":  {status: appsv1.DeploymentStatus{}, applied: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: tc.status}
			if got := rolloutResult(d, tc.applied, nil); (got.status == metav1.ConditionTrue) != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestStartFailure(t *testing.T) {
	t.Parallel()
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "serving", Image: "x:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	crashed := func(container, reason string, code int32, ready bool) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: container, RestartCount: 3, Ready: ready,
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}},
		}}}
	}
	restarted := func(times int32, state corev1.ContainerState) corev1.PodStatus {
		status := crashed("serving", "Error", 137, false)
		status.ContainerStatuses[0].RestartCount, status.ContainerStatuses[0].State = times, state
		return status
	}
	portInUse := crashed("serving", "Error", 1, false)
	portInUse.ContainerStatuses[0].LastTerminationState.Terminated.Message = "failed to listen on 0.0.0.0:4443: listen tcp 0.0.0.0:4443: bind: address already in use"
	cases := map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"fine":     {},
		"starting": {status: waiting("ContainerCreating", "")},
		"unschedulable": {status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available: 1 Insufficient cpu.",
		}}}, want: "no node can take it: 0/1 nodes are available: 1 Insufficient cpu."},
		"waiting for a gate": {status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulingGated",
		}}}},
		"no image":                 {status: waiting("ErrImagePull", "not found"), want: "image x:1 cannot be pulled (ImagePullBackOff): check spec.serving.image (by default the operator's --serving-image, in the chart serving.image), imagePullPolicy and imagePullSecrets"},
		"no image, backing off":    {status: waiting("ImagePullBackOff", `Back-off pulling image "x:1"`), want: "image x:1 cannot be pulled (ImagePullBackOff): check spec.serving.image (by default the operator's --serving-image, in the chart serving.image), imagePullPolicy and imagePullSecrets"},
		"no such name":             {status: waiting("InvalidImageName", ""), want: "x:1 is not the name of an image (InvalidImageName): correct spec.serving.image (by default the operator's --serving-image, in the chart serving.image)"},
		"no Secret":                {status: waiting("CreateContainerConfigError", `secret "y" not found`), want: `container serving cannot be started (CreateContainerConfigError): secret "y" not found`},
		"crashes":                  {status: crashed("serving", "Error", 1, false), want: "it crashes (CrashLoopBackOff), ended with exit code 1: kubectl logs -n ns p -c serving --previous"},
		"out of memory":            {status: crashed("serving", "OOMKilled", 137, false), want: "it crashes (CrashLoopBackOff), ran out of memory, raise spec.serving.resources.limits.memory: kubectl logs -n ns p -c serving --previous"},
		"port in use":              {status: portInUse, want: "it crashes (CrashLoopBackOff), port 4443 is already in use on its node or, on AWS Fargate, by its kubelet: set spec.serving.port to another one, such as 10251: kubectl logs -n ns p -c serving --previous"},
		"killed once, warming up":  {status: restarted(1, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})},
		"killed twice, warming up": {status: restarted(2, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})},
		"backs off the first time": {status: restarted(1, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}})},
		"backs off again":          {status: restarted(2, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}), want: "it crashes (CrashLoopBackOff), ended with exit code 137: kubectl logs -n ns p -c serving --previous"},
		"crashed once, fine now":   {status: crashed("serving", "Error", 1, true)},
		"someone's sidecar":        {status: crashed("injected", "Error", 2, false), want: "it crashes (CrashLoopBackOff), container injected ended with exit code 2: kubectl logs -n ns p -c injected --previous"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: tc.status}
			p.Spec.Containers = []corev1.Container{{Name: "serving", Ports: []corev1.ContainerPort{{Name: "https", ContainerPort: 4443}}}}
			if got := startFailure(p); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A failing rollout is reported in ServingReady, and nothing is registered meanwhile.
func TestRolloutFailed(t *testing.T) {
	t.Parallel()
	refused := func(message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: message}
	}
	cases := map[string]struct {
		condition appsv1.DeploymentCondition
		// observed: the status is of the Deployment's newest generation.
		observed bool
		pods     int
		want     string
	}{
		"pods are refused": {
			condition: refused("exceeded quota"),
			want: "no pod can be created: exceeded quota (the next attempt may be 17 minutes away; at once: " +
				"kubectl rollout restart -n operator-ns deployment/metrics-serving-cluster)",
		},
		"the priority class is limited": {
			condition: refused("insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]"),
			want: "no pod can be created: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]: " +
				"this cluster limits the priority class system-cluster-critical to namespaces with a ResourceQuota for it: create one in namespace operator-ns",
		},
		"a quota is exhausted": {
			condition: refused(`pods "x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5`),
			want:      `no pod can be created: pods "x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5: raise that ResourceQuota of namespace operator-ns`,
		},
		"deadline is over": {
			condition: appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"},
			observed:  true,
			pods:      1, want: "the rollout of Deployment operator-ns/metrics-serving-cluster makes no progress; pods that are not ready: pod-001",
		},
		"two pods without an image": {pods: 2, want: "pod operator-ns/pod-001: no node can take it: full (and 1 more pod)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := newFakeCluster(t, newBackend())
			r := fc.reconciler()
			mustReconcile(t, r)
			mustReconcile(t, r)
			d := &appsv1.Deployment{}
			fc.get(client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster"}, d)
			for range tc.pods {
				p := fc.newPod(d, "hash")
				if tc.pods > 1 {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "full"}}
				}
				fc.create(&p)
			}
			d.Status = appsv1.DeploymentStatus{}
			if tc.condition.Type != "" {
				d.Status.Conditions = []appsv1.DeploymentCondition{tc.condition}
			}
			if tc.observed {
				d.Status.ObservedGeneration = d.Generation
			}
			fc.updateStatus(d)
			mustReconcile(t, r)
			fc.wantCondition(v1alpha1.ConditionServingReady, "", v1alpha1.ReasonRolloutFailed)
			if c := fc.condition(v1alpha1.ConditionServingReady); !strings.HasPrefix(c.Message, tc.want) {
				t.Errorf("got %q, want %q", c.Message, tc.want)
			}
			fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed)
			fc.wantRegistered()
		})
	}
}

// An operator that cannot probe a pod registers nothing, and says what to check.
func TestProbeFailed(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	fc.unresponsive = true
	r := fc.reconciler()
	fc.reconcileUntil(r, func() bool { return fc.condition(v1alpha1.ConditionServingReady).Reason == v1alpha1.ReasonProbeFailed })
	fc.wantCondition(v1alpha1.ConditionServingReady, "", "", "pod operator-ns/pod-001 at 10.0.0.1", "connection refused", "NetworkPolicy")
	fc.wantRegistered()
	fc.unresponsive = false
	fc.reconcileUntil(r, fc.isReady)
}
