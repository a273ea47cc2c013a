// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestFinished(t *testing.T) {
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
			if got := finished(d, tc.applied); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestTrouble(t *testing.T) {
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
		"no image":                 {status: waiting("ErrImagePull", "not found"), want: "image x:1 cannot be pulled (ImagePullBackOff): check spec.serving.image, imagePullPolicy and imagePullSecrets"},
		"no image, backing off":    {status: waiting("ImagePullBackOff", `Back-off pulling image "x:1"`), want: "image x:1 cannot be pulled (ImagePullBackOff): check spec.serving.image, imagePullPolicy and imagePullSecrets"},
		"no such name":             {status: waiting("InvalidImageName", ""), want: "x:1 is not the name of an image (InvalidImageName): correct spec.serving.image"},
		"no Secret":                {status: waiting("CreateContainerConfigError", `secret "y" not found`), want: `container serving cannot be started (CreateContainerConfigError): secret "y" not found`},
		"crashes":                  {status: crashed("serving", "Error", 1, false), want: "it crashes (CrashLoopBackOff), ended with exit code 1: kubectl logs -n ns p -c serving --previous"},
		"out of memory":            {status: crashed("serving", "OOMKilled", 137, false), want: "it crashes (CrashLoopBackOff), ran out of memory, raise spec.serving.resources.limits.memory: kubectl logs -n ns p -c serving --previous"},
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
			if got := trouble(p); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// What keeps a rollout from finishing ends in ServingReady, and nothing is
// registered meanwhile.
func TestRolloutFailed(t *testing.T) {
	deployment := func(w *world) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		w.must(w.raw.Get(context.Background(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster"}, d))
		return d
	}
	cases := map[string]struct {
		status func(*world) appsv1.DeploymentStatus
		pods   int
		want   string
	}{
		"pods are refused": {
			status: func(*world) appsv1.DeploymentStatus {
				return appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota",
				}}}
			},
			want: "no pod can be made: exceeded quota",
		},
		"deadline is over": {
			status: func(w *world) appsv1.DeploymentStatus {
				return appsv1.DeploymentStatus{ObservedGeneration: deployment(w).Generation, Conditions: []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
				}}}
			},
			pods: 1, want: "the rollout of Deployment operator-ns/metrics-serving-cluster does not get on; pods that are not ready: pod-001",
		},
		"two pods without an image": {
			status: func(*world) appsv1.DeploymentStatus { return appsv1.DeploymentStatus{} },
			pods:   2, want: "pod operator-ns/pod-001: no node can take it: full (and 1 more pod)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, newBackend())
			r := w.reconciler(interceptor.Funcs{})
			mustReconcile(t, r)
			mustReconcile(t, r)
			d := deployment(w)
			for range tc.pods {
				p := w.newPod(d, "hash")
				if tc.pods > 1 {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "full"}}
				}
				w.must(w.raw.Create(context.Background(), &p))
			}
			d.Status = tc.status(w)
			w.must(w.raw.Status().Update(context.Background(), d))
			mustReconcile(t, r)
			c := w.condition(v1alpha1.ConditionServingReady)
			if c.Reason != v1alpha1.ReasonRolloutFailed || !strings.HasPrefix(c.Message, tc.want) {
				t.Errorf("got %s: %q, want %q", c.Reason, c.Message, tc.want)
			}
			if ready := w.condition(v1alpha1.ConditionReady); ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonRolloutFailed {
				t.Errorf("Ready is %+v", ready)
			}
			if len(w.apiServices()) > 0 {
				t.Error("registered all the same")
			}
		})
	}
}

// An operator that cannot ask a pod registers nothing, and says what to look at.
func TestProbeFailed(t *testing.T) {
	w := newWorld(t, newBackend())
	w.mute = true
	r := w.reconciler(interceptor.Funcs{})
	w.settle(r, func() bool { return w.condition(v1alpha1.ConditionServingReady).Reason == v1alpha1.ReasonProbeFailed })
	c := w.condition(v1alpha1.ConditionServingReady)
	for _, part := range []string{"pod operator-ns/pod-001 at 10.0.0.1", "connection refused", "NetworkPolicy"} {
		if !strings.Contains(c.Message, part) {
			t.Errorf("message %q, want %q in it", c.Message, part)
		}
	}
	if len(w.apiServices()) > 0 {
		t.Error("registered without having asked")
	}
	w.mute = false
	w.settle(r, w.isReady)

	// Versions that are registered stay: that the operator cannot ask is no proof.
	w.mute = true
	for range 3 {
		mustReconcile(t, r)
	}
	if len(w.apiServices()) != 2 {
		t.Errorf("registered: %v", w.registeredVersions())
	}
}

// A pod that is ready and does not serve a registered version, whatever made it
// so, takes the version out of discovery.
func TestReadyPodWithoutVersion(t *testing.T) {
	w, r := ready(t, interceptor.Funcs{})
	p := w.pods()[0]
	p.Spec.Containers[0].Image = imageV1beta1
	w.must(w.raw.Update(context.Background(), &p))
	w.everBroken = "expected by this test"
	for range 6 {
		mustReconcile(t, r)
		for gv := range w.discovered {
			w.discovered[gv] = w.isRegistered(gv)
		}
	}
	if got := strings.Join(w.registeredVersions(), " "); got != "v1beta1" {
		t.Errorf("registered %q, want v1beta1\n%s", got, w.show())
	}
	if c := w.condition(v1alpha1.ConditionServingReady); c.Reason != v1alpha1.ReasonVersionNotServed || !strings.Contains(c.Message, "pod "+p.Name+" (image serving:v1beta1-only)") {
		t.Errorf("ServingReady is %+v", c)
	}
}

// One ready pod that serves everything is not enough while others are to come.
func TestRegistersAfterTheRollout(t *testing.T) {
	w := newWorld(t, newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Replicas = ptr.To[int32](3) }))
	r := w.reconciler(interceptor.Funcs{})
	partly := 0
	w.settle(r, func() bool {
		ready := 0
		for _, p := range w.pods() {
			if isReady(&p) {
				ready++
			}
		}
		if ready > 0 && ready < 3 {
			partly++
			if len(w.apiServices()) > 0 {
				t.Errorf("registered with %d of 3 pods", ready)
			}
		}
		return w.isReady()
	})
	if partly == 0 {
		t.Error("never saw the rollout half-way")
	}
}
