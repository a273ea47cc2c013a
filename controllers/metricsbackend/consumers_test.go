// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	v1Name      = "v1.metrics.k8s.io"
	v1beta1Name = "v1beta1.metrics.k8s.io"
)

func onlyV1(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1"}
}

func despiteConsumers(spec *v1alpha1.MetricsBackendSpec) {
	spec.RemoveDespiteConsumers = []string{"v1beta1.metrics.k8s.io"}
}

func (fc *fakeCluster) today() string { return fc.clock.Now().UTC().Format(time.DateOnly) }

func consumer(version, userAgent, user, day string) v1alpha1.ConsumerStatus {
	return v1alpha1.ConsumerStatus{Version: version, UserAgent: userAgent, User: user, LastSeen: day}
}

// hpaOf is the HPA controller as a client of a version.
func hpaOf(version, day string) v1alpha1.ConsumerStatus {
	return consumer(version, "kube-controller-manager", "system:serviceaccount:kube-system:horizontal-pod-autoscaler", day)
}

func reportOf(consumers ...v1alpha1.ConsumerStatus) *v1alpha1.ConsumerReport {
	return &v1alpha1.ConsumerReport{Consumers: consumers}
}

// everyPod makes every pod report the same clients.
func everyPod(consumers ...v1alpha1.ConsumerStatus) func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) {
	return func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) { return reportOf(consumers...), nil }
}

// readyWithConsumers returns a ready backend whose v1beta1 the HPA controller uses.
func readyWithConsumers(t *testing.T) (*fakeCluster, *Reconciler) {
	t.Helper()
	fc, r := ready(t)
	fc.consumers = everyPod(hpaOf(v1beta1Name, fc.today()))
	mustReconcile(t, r)
	if c := fc.condition(v1alpha1.ConditionConsumersCompatible); c.Status != metav1.ConditionTrue || !fc.isReady() {
		t.Fatalf("while nothing is taken away: %+v", c)
	}
	return fc, r
}

// isKept reports whether the status says that the removal waits.
func (fc *fakeCluster) isKept() bool {
	return fc.isStalledBy(v1alpha1.ReasonConsumersActive)
}

func TestRemovalWaitsForConsumers(t *testing.T) {
	t.Parallel()
	fc, r := readyWithConsumers(t)
	recorder := events.NewFakeRecorder(1000)
	r.Events = recorder
	fc.change(onlyV1)
	fc.reconcileUntil(r, fc.isKept)
	fc.wantRegistered("v1", "v1beta1")
	for kind, want := range map[string]string{
		v1alpha1.ConditionConsumersCompatible:     "False ConsumersActive",
		v1alpha1.ConditionStaleAPIServicesRemoved: "False ConsumersActive",
		v1alpha1.ConditionReady:                   "False ConsumersActive",
		v1alpha1.ConditionStalled:                 "True ConsumersActive",
		v1alpha1.ConditionAvailable:               "True Succeeded",
		v1alpha1.ConditionServingReady:            "True Succeeded",
	} {
		c := fc.condition(kind)
		if got := string(c.Status) + " " + c.Reason; got != want || c.ObservedGeneration != fc.backend().Generation {
			t.Errorf("%s is %s of generation %d, want %s", kind, got, c.ObservedGeneration, want)
		}
	}
	fc.wantCondition(v1alpha1.ConditionConsumersCompatible, "", "",
		"v1beta1.metrics.k8s.io is no longer in spec.resourceMetrics.versions", "the HPA controller, kube-controller-manager",
		`kubectl patch metricsbackend cluster --type=merge -p '{"spec":{"removeDespiteConsumers":["v1beta1.metrics.k8s.io"]}}'`)
	if state := fc.state(v1beta1Name); state != v1alpha1.APIServiceKept {
		t.Errorf("state of the version that is kept: %q", state)
	}

	fc.change(despiteConsumers)
	fc.reconcileUntil(r, fc.isReady)
	fc.wantRegistered("v1")
	fc.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionTrue, v1alpha1.ReasonRemovalForced, "the HPA controller")
	close(recorder.Events)
	reported := map[string]int{}
	for e := range recorder.Events {
		reported[strings.Join(strings.Fields(e)[:2], " ")]++
	}
	for _, want := range []string{"Warning ConsumersActive", "Warning RemovalForced", "Normal VersionRetired"} {
		if reported[want] != 1 {
			t.Errorf("event %q was recorded %d times: %v", want, reported[want], reported)
		}
	}
}

// The removal goes on once no client has used the version for a whole day.
func TestRemovalGoesOnAfterADay(t *testing.T) {
	t.Parallel()
	fc, r := readyWithConsumers(t)
	fc.change(onlyV1)
	fc.reconcileUntil(r, fc.isKept)
	fc.consumers = nil
	fc.clock.Step(24 * time.Hour)
	mustReconcile(t, r)
	mustReconcile(t, r)
	fc.wantRegistered("v1", "v1beta1")
	fc.clock.Step(24 * time.Hour)
	fc.reconcileUntil(r, fc.isReady)
	fc.wantRegistered("v1")
	fc.wantCondition(v1alpha1.ConditionConsumersCompatible, "", v1alpha1.ReasonSucceeded)
	if left := fc.backend().Status.Consumers; len(left) > 0 {
		t.Errorf("the status remembers %v", left)
	}
}

func TestPutBackWhileKept(t *testing.T) {
	t.Parallel()
	fc, r := readyWithConsumers(t)
	fc.change(onlyV1)
	fc.reconcileUntil(r, fc.isKept)
	service := fc.storedAPIService(v1beta1Name)
	fc.change(bothVersions)
	fc.reconcileUntil(r, fc.isReady)
	if now := fc.storedAPIService(v1beta1Name); now != service {
		t.Errorf("the APIService changed: %s, before %s", now, service)
	}
}

func (fc *fakeCluster) storedAPIService(name string) string {
	for _, service := range fc.apiServices() {
		if service.Name == name {
			return string(service.UID) + "/" + service.ResourceVersion
		}
	}
	return ""
}

// The status keeps clients across new pods and a new operator.
func TestRollingUpdateKeepsConsumers(t *testing.T) {
	t.Parallel()
	fc, _ := readyWithConsumers(t)
	fc.consumers = nil
	r := fc.reconciler()
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Labels = map[string]string{"roll": "once"} })
	fc.reconcileUntil(r, fc.isReady)
	fc.clock.Step(12 * time.Hour)
	fc.change(onlyV1)
	r = fc.reconciler()
	fc.reconcileUntil(r, fc.isKept)
	fc.wantRegistered("v1", "v1beta1")
}

// The report of a terminating pod is stored.
func TestTerminatingPodsReportConsumers(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.terminationSteps = 5
	fc.consumers = func(p *corev1.Pod) (*v1alpha1.ConsumerReport, error) {
		if p.Spec.Containers[0].Image == imageBoth {
			return reportOf(), nil
		}
		return reportOf(hpaOf(v1beta1Name, fc.today())), nil
	}
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1; onlyV1beta1(spec) })
	fc.reconcileUntil(r, fc.isReady)
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageBoth })
	fc.reconcileUntil(r, fc.isReady)
	if !slices.Contains(fc.backend().Status.Consumers, hpaOf(v1beta1Name, fc.today())) {
		t.Errorf("forgotten with the pod that saw it: %v", fc.backend().Status.Consumers)
	}
}

// Only removals by the spec wait, and not those that it forces.
func TestRemovalsThatNeverWait(t *testing.T) {
	t.Parallel()
	v1Used := func(fc *fakeCluster) { fc.consumers = everyPod(consumer(v1Name, "kubectl", "jane", fc.today())) }
	gone := func(gv string) func(*fakeCluster) bool {
		return func(fc *fakeCluster) bool { return !slices.Contains(fc.registeredVersions(), gv) }
	}
	cases := map[string]struct {
		prepare func(*fakeCluster)
		change  func(*fakeCluster)
		done    func(*fakeCluster) bool
	}{
		"an image rollback": {
			v1Used, func(fc *fakeCluster) {
				fc.change(func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Image = imageV1beta1 })
			}, gone("v1"),
		},
		"an image rollback of a version that is kept": {
			v1Used,
			func(fc *fakeCluster) {
				fc.change(onlyV1beta1)
				fc.reconcileUntil(fc.reconciler(), fc.isKept)
				fc.change(func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Image = imageV1beta1 })
			},
			(*fakeCluster).isReady,
		},
		"a deletion": {v1Used, func(fc *fakeCluster) { fc.delete(fc.backend()) }, (*fakeCluster).isGone},
		"a namespace that ends": {
			v1Used,
			func(fc *fakeCluster) {
				fc.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})
			},
			func(fc *fakeCluster) bool { return len(fc.registeredVersions()) == 0 },
		},
		"a version that another backend names": {
			v1Used,
			func(fc *fakeCluster) {
				fc.claimV1(metav1.ConditionTrue)
				fc.change(onlyV1beta1)
			},
			gone("v1"),
		},
		"an override from the beginning": {
			v1Used,
			func(fc *fakeCluster) {
				fc.change(func(s *v1alpha1.MetricsBackendSpec) {
					onlyV1beta1(s)
					s.RemoveDespiteConsumers = []string{"v1.metrics.k8s.io"}
				})
			},
			(*fakeCluster).isReady,
		},
		"a version whose requests fail": {
			v1Used,
			func(fc *fakeCluster) {
				fc.refused = true
				fc.change(onlyV1beta1)
			},
			gone("v1"),
		},
		"clients of other versions alone": {
			func(fc *fakeCluster) { fc.consumers = everyPod(hpaOf(v1beta1Name, fc.today())) },
			func(fc *fakeCluster) { fc.change(onlyV1beta1) }, (*fakeCluster).isReady,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			tc.prepare(fc)
			mustReconcile(t, r)
			tc.change(fc)
			fc.reconcileUntil(r, func() bool { return tc.done(fc) })
			if slices.Contains(fc.registeredVersions(), "v1") {
				t.Error("v1 is still registered")
			}
		})
	}
}

// claimV1 adds a younger MetricsBackend that names v1 and waits for it, with ServingReady
// as given.
func (fc *fakeCluster) claimV1(serving metav1.ConditionStatus) {
	fc.t.Helper()
	other := newBackend(onlyV1)
	other.Name, other.UID = "other", "uid-other"
	other.CreationTimestamp = metav1.NewTime(fc.clock.Now())
	fc.create(other)
	other.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionServingReady, Status: serving, ObservedGeneration: other.Generation},
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConflict},
	}
	fc.updateStatus(other)
}

// Clients are not left to a backend that is not ready to serve them.
func TestRemovalWaitsForAReadySuccessor(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.consumers = everyPod(consumer(v1Name, "kubectl", "jane", fc.today()))
	mustReconcile(t, r)
	fc.claimV1(metav1.ConditionFalse)
	fc.change(onlyV1beta1)
	fc.reconcileUntil(r, fc.isKept)
	fc.wantRegistered("v1", "v1beta1")
}

// A pod that does not report its clients does not prove that there are none.
func TestPodsNotReportingConsumers(t *testing.T) {
	t.Parallel()
	refuse := func(err error) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.consumers = func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) { return nil, err }
		}
	}
	cases := map[string]struct {
		silence func(*fakeCluster)
		part    string
	}{
		"unreachable":  {func(fc *fakeCluster) { fc.unresponsive = true }, "it does not answer the operator"},
		"garbage":      {refuse(errors.New("read the answer to /consumers: invalid character '<'")), "invalid character"},
		"oversize":     {refuse(errors.New("read the answer to /consumers: longer than 1048576 bytes")), "longer than 1048576 bytes"},
		"not heard of": {refuse(errors.New("ask /consumers: answered 403 Forbidden")), "403 Forbidden"},
		"half an answer": {func(fc *fakeCluster) {
			fc.partial = errors.New("ask /apis/metrics.k8s.io/v1/nodes: answered 403 Forbidden")
		}, "403 Forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			tc.silence(fc)
			fc.change(onlyV1)
			var result ctrl.Result
			for range 10 {
				var err error
				result, err = reconcileOnce(t, r)
				fc.must(err)
				fc.step()
			}
			if result.RequeueAfter < progressMin {
				t.Errorf("pods are asked again after %s", result.RequeueAfter)
			}
			fc.wantRegistered("v1", "v1beta1")
			fc.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, v1alpha1.ReasonProbeFailed,
				tc.part, "v1beta1.metrics.k8s.io stays until every ready pod has said who uses it", "removeDespiteConsumers")
			if fc.isReady() {
				t.Error("Ready, although the spec is not carried out")
			}

			fc.unresponsive, fc.partial, fc.consumers = false, nil, everyPod(hpaOf(v1beta1Name, fc.today()))
			fc.reconcileUntil(r, fc.isKept)
			fc.consumers = nil
			fc.clock.Step(48 * time.Hour)
			fc.reconcileUntil(r, fc.isReady)
			fc.wantRegistered("v1")
		})
	}
	t.Run("override", func(t *testing.T) {
		fc, r := ready(t)
		fc.unresponsive = true
		fc.change(func(spec *v1alpha1.MetricsBackendSpec) { onlyV1(spec); despiteConsumers(spec) })
		fc.reconcileUntil(r, func() bool { return !fc.isRegistered(v1beta1) })
	})
	t.Run("one of two pods", func(t *testing.T) {
		fc, r := ready(t)
		first := fc.pods()[0].Name
		fc.consumers = func(p *corev1.Pod) (*v1alpha1.ConsumerReport, error) {
			if p.Name == first {
				return nil, errors.New("ask /consumers: answered 500 Internal Server Error")
			}
			return reportOf(), nil
		}
		mustReconcile(t, r)
		fc.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionTrue, "")
		fc.change(onlyV1)
		for range 5 {
			mustReconcile(t, r)
		}
		fc.wantRegistered("v1", "v1beta1")
	})
}

func TestConsumersUnknown(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*fakeCluster)
		reason string
		part   string
	}{
		"no pod is ready": {func(fc *fakeCluster) {
			for _, p := range fc.pods() {
				p.Status.Conditions = nil
				fc.updateStatus(&p)
			}
		}, v1alpha1.ReasonDependencyNotReady, "no ready serving pod"},
		"no pod answers":    {func(fc *fakeCluster) { fc.unresponsive = true }, v1alpha1.ReasonProbeFailed, "does not answer the operator"},
		"each answers half": {func(fc *fakeCluster) { fc.partial = errors.New("answered 403 Forbidden") }, v1alpha1.ReasonProbeFailed, "403 Forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			tc.happen(fc)
			mustReconcile(t, r)
			// Past the grace period.
			fc.clock.Step(servingGrace)
			mustReconcile(t, r)
			fc.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, tc.reason, tc.part)
		})
	}
}

// For a backend from before the condition existed, pods are asked before a version is
// removed.
func TestConditionIsNewWithTheOperator(t *testing.T) {
	t.Parallel()
	fc, r := ready(t)
	fc.consumers = everyPod(hpaOf(v1beta1Name, fc.today()))
	fc.change(onlyV1)
	backend := fc.backend()
	backend.Status.Conditions = slices.DeleteFunc(backend.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionConsumersCompatible
	})
	backend.Status.Consumers = nil
	fc.updateStatus(backend)
	fc.reconcileUntil(r, fc.isKept)
	fc.wantRegistered("v1", "v1beta1")
}

// The caBundle of a kept version follows the certificates.
func TestKeptVersionFollowsTheCertificates(t *testing.T) {
	t.Parallel()
	fc, r := readyWithConsumers(t)
	fc.change(onlyV1)
	fc.reconcileUntil(r, fc.isKept)
	for _, service := range fc.apiServices() {
		service.Spec.CABundle = nil
		fc.update(&service, client.FieldOwner("somebody"))
	}
	mustReconcile(t, r)
	for _, service := range fc.apiServices() {
		if len(service.Spec.CABundle) == 0 {
			t.Errorf("%s has lost its caBundle", service.Name)
		}
	}
	fc.wantRegistered("v1", "v1beta1")
}

// A merge patch replaces the list: the command repeats what is in it.
func TestRemovalCommand(t *testing.T) {
	t.Parallel()
	s := &reconcileState{backend: newBackend(), spec: v1alpha1.MetricsBackendSpec{RemoveDespiteConsumers: []string{"v1.metrics.k8s.io"}}}
	const want = `kubectl patch metricsbackend cluster --type=merge -p '{"spec":{"removeDespiteConsumers":["v1.metrics.k8s.io","v1beta1.custom.metrics.k8s.io","v1beta2.custom.metrics.k8s.io"]}}'`
	if got := s.removalCommand("v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
