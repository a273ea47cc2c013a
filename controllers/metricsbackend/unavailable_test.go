// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// makeUnready changes the first pods, as many as given, which are never ready again.
func (fc *fakeCluster) makeUnready(number int, change func(*corev1.Pod)) {
	fc.t.Helper()
	names := map[string]bool{}
	for _, p := range fc.pods()[:number] {
		names[p.Name] = true
		p.Status.Conditions = nil
		change(&p)
		status := p.Status
		fc.update(&p)
		p.Status = status
		fc.updateStatus(&p)
	}
	fc.unready = func(p *corev1.Pod) bool { return names[p.Name] }
	fc.step()
}

// rollOutUnready starts a rollout whose first pod, as changed, never becomes ready.
func (fc *fakeCluster) rollOutUnready(r *Reconciler, image string, change func(*corev1.Pod)) {
	fc.t.Helper()
	before := len(fc.pods())
	fc.unready = func(p *corev1.Pod) bool { return imageOf(&p.Spec) == image }
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = image })
	fc.reconcileUntil(r, func() bool { return len(fc.pods()) > before })
	fc.changePods(image, change)
}

// changePods changes the status of the pods of the image.
func (fc *fakeCluster) changePods(image string, change func(*corev1.Pod)) {
	fc.t.Helper()
	for _, p := range fc.pods() {
		if imageOf(&p.Spec) == image {
			change(&p)
			fc.updateStatus(&p)
		}
	}
}

func unchanged(*corev1.Pod) {}

func noAddress(p *corev1.Pod) { p.Status.PodIP = "" }

const imageBroken = "serving:broken"

func unschedulable(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "full",
	}}}
}

func crashing(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "serving", Image: p.Spec.Containers[0].Image, RestartCount: 5,
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 1}},
	}}}
}

// Someone deletes the APIServices while a pod is unavailable. They are put back once a
// ready pod serves their versions and no pod that answers lacks them.
func TestDeletedWhileAPodIsUnavailable(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*fakeCluster, *Reconciler)
		// restart replaces the operator after the deletion.
		restart bool
		// deleted are both versions by default.
		deleted []schema.GroupVersion
		want    []string
	}{
		"a pod serves, and is not ready": {
			happen: func(fc *fakeCluster, _ *Reconciler) { fc.makeUnready(1, unchanged) },
			want:   []string{"v1", "v1beta1"},
		},
		"the operator restarts": {
			happen:  func(fc *fakeCluster, _ *Reconciler) { fc.makeUnready(1, unchanged) },
			restart: true, want: []string{"v1", "v1beta1"},
		},
		"a pod does not answer": {
			happen: func(fc *fakeCluster, _ *Reconciler) { fc.makeUnready(1, noAddress) },
			want:   []string{"v1", "v1beta1"},
		},
		"a pod crashes": {
			happen: func(fc *fakeCluster, _ *Reconciler) { fc.makeUnready(1, crashing) },
			want:   []string{"v1", "v1beta1"},
		},
		"a pod cannot be placed": {
			happen: func(fc *fakeCluster, _ *Reconciler) { fc.makeUnready(1, unschedulable) },
			want:   []string{"v1", "v1beta1"},
		},
		"a pod that is not ready lacks v1": {
			happen: func(fc *fakeCluster, _ *Reconciler) {
				fc.makeUnready(1, func(p *corev1.Pod) { p.Spec.Containers[0].Image = imageV1beta1 })
			},
			want: []string{"v1beta1"},
		},
		"no pod is ready": {
			happen: func(fc *fakeCluster, _ *Reconciler) { fc.makeUnready(2, unchanged) },
		},
		"a ready pod cannot be asked": {
			happen: func(fc *fakeCluster, _ *Reconciler) {
				silent := fc.pods()[0].Name
				fc.silent = func(p *corev1.Pod) bool { return p.Name == silent }
			},
			want: []string{"v1", "v1beta1"},
		},
		"requests fail in one of two pods": {
			happen: func(fc *fakeCluster, _ *Reconciler) {
				fc.fails([]schema.GroupVersion{v1, v1beta1}, fc.pods()[0].Name)
			},
			want: []string{"v1", "v1beta1"},
		},
		"requests of one version fail in one of two pods": {
			happen:  func(fc *fakeCluster, _ *Reconciler) { fc.fails([]schema.GroupVersion{v1}, fc.pods()[0].Name) },
			deleted: []schema.GroupVersion{v1}, want: []string{"v1beta1"},
		},
		"a new image cannot be placed": {
			happen: func(fc *fakeCluster, r *Reconciler) { fc.rollOutUnready(r, imageBroken, unschedulable) },
			want:   []string{"v1", "v1beta1"},
		},
		"a new image crashes": {
			happen: func(fc *fakeCluster, r *Reconciler) { fc.rollOutUnready(r, imageBroken, crashing) },
			want:   []string{"v1", "v1beta1"},
		},
		"a new image is being started": {
			happen: func(fc *fakeCluster, r *Reconciler) {
				fc.rollOutUnready(r, imageBroken, func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
			},
		},
		"nothing else": {happen: func(*fakeCluster, *Reconciler) {}, want: []string{"v1", "v1beta1"}},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc, r := ready(t)
			tc.happen(fc, r)
			mustReconcile(t, r)
			if tc.deleted == nil {
				tc.deleted = []schema.GroupVersion{v1, v1beta1}
			}
			for _, gv := range tc.deleted {
				if fc.isRegistered(gv) {
					fc.delete(fc.apiService(gv))
				}
			}
			if tc.restart {
				r = fc.reconciler()
			}
			fc.reconcileRounds(r, 12)
			if diff := cmp.Diff(tc.want, fc.registeredVersions()); diff != "" {
				t.Errorf("registered (-want +got):\n%s\n%s", diff, fc.show())
			}
			if fc.violation != "" {
				t.Errorf("invariant broken: %s", fc.violation)
			}
		})
	}
}

// A new image that lacks v1 crashes now and then. v1 is retired, and does not come back
// each time that the pod does not answer.
func TestCrashingImageThatLacksAVersion(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.rollOutUnready(r, imageV1beta1, unchanged)
	fc.reconcileUntil(r, func() bool { return !fc.isRegistered(v1) })
	runs := func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.9.9"} }
	for range 5 {
		for _, change := range []func(*corev1.Pod){crashing, runs} {
			fc.changePods(imageV1beta1, change)
			fc.reconcileRounds(r, 4)
			fc.wantRegistered("v1beta1")
		}
	}
	if fc.violation != "" {
		t.Errorf("invariant broken: %s", fc.violation)
	}
}

// Half of our pods do not replace an implementation that works, nor add a version beside
// it that clients would prefer.
func TestUnavailablePodWhileOthersServe(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*v1alpha1.MetricsBackendSpec){
		"both versions":            adopting(v1alpha1.AdoptionAlways),
		"a version that they lack": onlyV1,
	}
	for name, spec := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend(spec))
			stockCluster(fc)
			r := fc.live()
			fc.unready = func(p *corev1.Pod) bool { return p.Name != "pod-001" }
			fc.reconcileRounds(r, 30)
			if pods := len(fc.pods()); pods != 2 {
				t.Fatalf("%d pods", pods)
			}
			fc.wantPointsTo(v1, "")
			fc.wantPointsTo(v1beta1, metricsServer)
			fc.unready = nil
			fc.reconcileUntil(r, fc.isReady)
			fc.wantPointsTo(v1, ourService)
		})
	}
}
