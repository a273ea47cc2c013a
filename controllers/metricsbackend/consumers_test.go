// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func onlyV1(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1"}
}

func despiteConsumers(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics.RemoveDespiteConsumers = []v1alpha1.ResourceMetricsVersion{"v1beta1"}
}

func (w *world) today() string { return day(w.clock.Now()) }

// everyPod reports the same clients.
func everyPod(consumers ...v1alpha1.ConsumerStatus) func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) {
	return func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) { return reportOf(consumers...), nil }
}

// used is a world in which the HPA controller uses v1beta1, and a reconciler.
func used(t *testing.T) (*world, *Reconciler) {
	t.Helper()
	w, r := ready(t)
	w.consumers = everyPod(hpaOf(v1beta1Name, w.today()))
	mustReconcile(t, r)
	if c := w.condition(v1alpha1.ConditionConsumersCompatible); c.Status != metav1.ConditionTrue || !w.isReady() {
		t.Fatalf("while nothing is taken away: %+v", c)
	}
	return w, r
}

// isKept waits until the operator has said that the removal waits.
func (w *world) isKept() bool {
	return w.isStalledBy(v1alpha1.ReasonConsumersActive)
}

func TestRemovalWaitsForConsumers(t *testing.T) {
	t.Parallel()
	w, r := used(t)
	recorder := events.NewFakeRecorder(1000)
	r.Events = recorder
	w.change(onlyV1)
	w.settle(r, w.isKept)
	w.wantRegistered("v1", "v1beta1")
	for kind, want := range map[string]string{
		v1alpha1.ConditionConsumersCompatible:     "False ConsumersActive",
		v1alpha1.ConditionStaleAPIServicesRemoved: "False ConsumersActive",
		v1alpha1.ConditionReady:                   "False ConsumersActive",
		v1alpha1.ConditionStalled:                 "True ConsumersActive",
		v1alpha1.ConditionAvailable:               "True Succeeded",
		v1alpha1.ConditionServingReady:            "True Succeeded",
	} {
		c := w.condition(kind)
		if got := string(c.Status) + " " + c.Reason; got != want || c.ObservedGeneration != w.backend().Generation {
			t.Errorf("%s is %s of generation %d, want %s", kind, got, c.ObservedGeneration, want)
		}
	}
	w.wantCondition(v1alpha1.ConditionConsumersCompatible, "", "",
		"v1beta1.metrics.k8s.io is no longer in spec.resourceMetrics.versions", "the HPA controller, kube-controller-manager",
		`kubectl patch metricsbackend cluster --type=merge -p '{"spec":{"resourceMetrics":{"removeDespiteConsumers":["v1beta1"]}}}'`)
	if state := w.state(v1beta1Name); state != v1alpha1.APIServiceAvailable {
		t.Errorf("state of the version that is kept: %q", state)
	}

	w.change(despiteConsumers)
	w.settle(r, w.isReady)
	w.wantRegistered("v1")
	w.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionTrue, v1alpha1.ReasonRemovalForced, "the HPA controller")
	close(recorder.Events)
	told := map[string]int{}
	for e := range recorder.Events {
		told[strings.Join(strings.Fields(e)[:2], " ")]++
	}
	for _, want := range []string{"Warning ConsumersActive", "Warning RemovalForced", "Normal VersionRetired"} {
		if told[want] != 1 {
			t.Errorf("event %q was recorded %d times: %v", want, told[want], told)
		}
	}
}

// The clients move to another version; a whole day without them ends the wait.
func TestRemovalGoesOnAfterADay(t *testing.T) {
	t.Parallel()
	w, r := used(t)
	w.change(onlyV1)
	w.settle(r, w.isKept)
	w.consumers = nil
	w.clock.Step(24 * time.Hour)
	mustReconcile(t, r)
	mustReconcile(t, r)
	w.wantRegistered("v1", "v1beta1")
	w.clock.Step(24 * time.Hour)
	w.settle(r, w.isReady)
	w.wantRegistered("v1")
	w.wantCondition(v1alpha1.ConditionConsumersCompatible, "", v1alpha1.ReasonSucceeded)
	if left := w.backend().Status.Consumers; len(left) > 0 {
		t.Errorf("the status remembers %v", left)
	}
}

func TestPutBackWhileKept(t *testing.T) {
	t.Parallel()
	w, r := used(t)
	w.change(onlyV1)
	w.settle(r, w.isKept)
	service := w.storedAPIService(v1beta1Name)
	w.change(bothVersions)
	w.settle(r, w.isReady)
	if now := w.storedAPIService(v1beta1Name); now != service {
		t.Errorf("the APIService changed: %s, before %s", now, service)
	}
}

func (w *world) storedAPIService(name string) string {
	for _, service := range w.apiServices() {
		if service.Name == name {
			return string(service.UID) + "/" + service.ResourceVersion
		}
	}
	return ""
}

// The status is the memory: neither new pods nor a new operator forget a client.
func TestRollingUpdateForgetsNobody(t *testing.T) {
	t.Parallel()
	w, _ := used(t)
	w.consumers = nil
	r := w.reconciler()
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Labels = map[string]string{"roll": "once"} })
	w.settle(r, w.isReady)
	w.clock.Step(12 * time.Hour)
	w.change(onlyV1)
	r = w.reconciler()
	w.settle(r, w.isKept)
	w.wantRegistered("v1", "v1beta1")
}

// What an ending pod saw is not lost with it.
func TestEndingPodsTell(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.lingers = 5
	w.consumers = func(p *corev1.Pod) (*v1alpha1.ConsumerReport, error) {
		if p.Spec.Containers[0].Image == imageBoth {
			return reportOf(), nil
		}
		return reportOf(hpaOf(v1beta1Name, w.today())), nil
	}
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1; onlyV1beta1(spec) })
	w.settle(r, w.isReady)
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageBoth })
	w.settle(r, w.isReady)
	if !hasConsumer(w.backend().Status.Consumers, hpaOf(v1beta1Name, w.today())) {
		t.Errorf("forgotten with the pod that saw it: %v", w.backend().Status.Consumers)
	}
}

// What is no choice of the spec's author does not wait, and neither does what was
// named.
func TestRemovalsThatNeverWait(t *testing.T) {
	t.Parallel()
	v1Used := func(w *world) { w.consumers = everyPod(seen(v1Name, "kubectl", "jane", w.today())) }
	gone := func(gv string) func(*world) bool {
		return func(w *world) bool { return !slices.Contains(w.registeredVersions(), gv) }
	}
	cases := map[string]struct {
		prepare func(*world)
		change  func(*world)
		done    func(*world) bool
	}{
		"an image rollback": {
			v1Used, func(w *world) { w.change(func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Image = imageV1beta1 }) }, gone("v1"),
		},
		"an image rollback of a version that is kept": {
			v1Used,
			func(w *world) {
				w.change(onlyV1beta1)
				w.settle(w.reconciler(), w.isKept)
				w.change(func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Image = imageV1beta1 })
			},
			(*world).isReady,
		},
		"a deletion": {v1Used, func(w *world) { w.delete(w.backend()) }, (*world).isGone},
		"a namespace that ends": {
			v1Used,
			func(w *world) {
				w.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})
			},
			func(w *world) bool { return len(w.registeredVersions()) == 0 },
		},
		"a version that another backend names": {
			v1Used,
			func(w *world) {
				w.claimV1(metav1.ConditionTrue)
				w.change(onlyV1beta1)
			},
			gone("v1"),
		},
		"an override from the beginning": {
			v1Used,
			func(w *world) {
				w.change(func(s *v1alpha1.MetricsBackendSpec) {
					onlyV1beta1(s)
					s.ResourceMetrics.RemoveDespiteConsumers = []v1alpha1.ResourceMetricsVersion{"v1"}
				})
			},
			(*world).isReady,
		},
		"an image too old to tell": {
			func(w *world) {
				w.consumers = func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) { return nil, nil }
			},
			func(w *world) { w.change(onlyV1beta1) }, (*world).isReady,
		},
		"clients of other versions alone": {
			func(w *world) { w.consumers = everyPod(hpaOf(v1beta1Name, w.today())) },
			func(w *world) { w.change(onlyV1beta1) }, (*world).isReady,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := ready(t)
			tc.prepare(w)
			mustReconcile(t, r)
			tc.change(w)
			w.settle(r, func() bool { return tc.done(w) })
			if slices.Contains(w.registeredVersions(), "v1") {
				t.Error("v1 is still registered")
			}
		})
	}
}

// claimV1 adds a younger MetricsBackend that names v1 and waits for it, with pods
// that are ready or not.
func (w *world) claimV1(serving metav1.ConditionStatus) {
	w.t.Helper()
	other := newBackend(onlyV1)
	other.Name, other.UID = "other", "uid-other"
	other.CreationTimestamp = metav1.NewTime(w.clock.Now())
	w.create(other)
	other.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionServingReady, Status: serving, ObservedGeneration: other.Generation},
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConflict},
	}
	w.updateStatus(other)
}

// Who names a version and cannot serve it is no one to leave clients to.
func TestRemovalWaitsForAnHeirThatIsReady(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.consumers = everyPod(seen(v1Name, "kubectl", "jane", w.today()))
	mustReconcile(t, r)
	w.claimV1(metav1.ConditionFalse)
	w.change(onlyV1beta1)
	w.settle(r, w.isKept)
	w.wantRegistered("v1", "v1beta1")
}

// Pods that cannot say who uses a version are no proof that nobody does.
func TestSilentPods(t *testing.T) {
	t.Parallel()
	refuse := func(err error) func(*world) {
		return func(w *world) {
			w.consumers = func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) { return nil, err }
		}
	}
	cases := map[string]struct {
		silence func(*world)
		part    string
	}{
		"unreachable":    {func(w *world) { w.mute = true }, "it does not answer the operator"},
		"garbage":        {refuse(errors.New("read the answer to /consumers: invalid character '<'")), "invalid character"},
		"oversize":       {refuse(errors.New("read the answer to /consumers: longer than 1048576 bytes")), "longer than 1048576 bytes"},
		"not heard of":   {refuse(errors.New("ask /consumers: answered 403 Forbidden")), "403 Forbidden"},
		"half an answer": {func(w *world) { w.half = errors.New("ask /apis/metrics.k8s.io/v1/nodes: answered 403 Forbidden") }, "403 Forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := ready(t)
			tc.silence(w)
			w.change(onlyV1)
			var result ctrl.Result
			for range 10 {
				var err error
				result, err = reconcileOnce(t, r)
				w.must(err)
				w.step()
			}
			if result.RequeueAfter < progressMin {
				t.Errorf("pods are asked again after %s", result.RequeueAfter)
			}
			w.wantRegistered("v1", "v1beta1")
			w.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, v1alpha1.ReasonProbeFailed,
				tc.part, "v1beta1.metrics.k8s.io stays until every ready pod has said who uses it", "removeDespiteConsumers")
			if w.isReady() {
				t.Error("Ready, although the spec is not carried out")
			}

			w.mute, w.half, w.consumers = false, nil, everyPod(hpaOf(v1beta1Name, w.today()))
			w.settle(r, w.isKept)
			w.consumers = nil
			w.clock.Step(48 * time.Hour)
			w.settle(r, w.isReady)
			w.wantRegistered("v1")
		})
	}
	t.Run("override", func(t *testing.T) {
		w, r := ready(t)
		w.mute = true
		w.change(func(spec *v1alpha1.MetricsBackendSpec) { onlyV1(spec); despiteConsumers(spec) })
		w.settle(r, func() bool { return !w.isRegistered(v1beta1) })
	})
	t.Run("one of two pods", func(t *testing.T) {
		w, r := ready(t)
		first := w.pods()[0].Name
		w.consumers = func(p *corev1.Pod) (*v1alpha1.ConsumerReport, error) {
			if p.Name == first {
				return nil, errors.New("ask /consumers: answered 500 Internal Server Error")
			}
			return reportOf(), nil
		}
		mustReconcile(t, r)
		w.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionTrue, "")
		w.change(onlyV1)
		for range 5 {
			mustReconcile(t, r)
		}
		w.wantRegistered("v1", "v1beta1")
	})
}

func TestConsumersUnknown(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*world)
		reason string
		part   string
	}{
		"older images": {func(w *world) {
			w.consumers = func(*corev1.Pod) (*v1alpha1.ConsumerReport, error) { return nil, nil }
		}, v1alpha1.ReasonConsumersUnknown, "too old to tell"},
		"no pod is ready": {func(w *world) {
			for _, p := range w.pods() {
				p.Status.Conditions = nil
				w.updateStatus(&p)
			}
		}, v1alpha1.ReasonDependencyNotReady, "no ready serving pod"},
		"no pod answers":    {func(w *world) { w.mute = true }, v1alpha1.ReasonProbeFailed, "does not answer the operator"},
		"each answers half": {func(w *world) { w.half = errors.New("answered 403 Forbidden") }, v1alpha1.ReasonProbeFailed, "403 Forbidden"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w, r := ready(t)
			tc.happen(w)
			mustReconcile(t, r)
			// Longer than a hiccup.
			w.clock.Step(servingGrace)
			mustReconcile(t, r)
			w.wantCondition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, tc.reason, tc.part)
		})
	}
}

// Clients that come each few seconds for a week are one write a day, and clients
// that come once a day are one more.
func TestConsumersAreWrittenOnceADay(t *testing.T) {
	t.Parallel()
	w, r := used(t)
	w.consumers = func(p *corev1.Pod) (*v1alpha1.ConsumerReport, error) {
		consumers := []v1alpha1.ConsumerStatus{hpaOf(v1beta1Name, w.today()), seen(v1Name, "vpa-recommender", "vpa", w.today())}
		if w.clock.Now().Hour() >= 9 {
			consumers = append(consumers, seen(v1Name, "kubectl", "jane", w.today()))
		}
		return reportOf(consumers...), nil
	}
	mustReconcile(t, r)
	version, writes := w.backend().ResourceVersion, 0
	days := shortened(7, 1)
	for end := w.clock.Now().AddDate(0, 0, days); w.clock.Now().Before(end); w.clock.Step(time.Minute) {
		// Each minute of the hours' beginnings is enough.
		if minute := w.clock.Now().Minute(); minute > 15 && minute%10 != 0 {
			continue
		}
		mustReconcile(t, r)
		if now := w.backend().ResourceVersion; now != version {
			version = now
			writes++
		}
	}
	if writes > 2*days {
		t.Errorf("%d writes in %d days", writes, days)
	}
	want := []v1alpha1.ConsumerStatus{
		seen(v1Name, "kubectl", "jane", w.today()), seen(v1Name, "vpa-recommender", "vpa", w.today()), hpaOf(v1beta1Name, w.today()),
	}
	if diff := cmp.Diff(want, w.backend().Status.Consumers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A backend from before the condition existed is asked before anything is taken.
func TestConditionIsNewWithTheOperator(t *testing.T) {
	t.Parallel()
	w, r := ready(t)
	w.consumers = everyPod(hpaOf(v1beta1Name, w.today()))
	w.change(onlyV1)
	backend := w.backend()
	backend.Status.Conditions = slices.DeleteFunc(backend.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionConsumersCompatible
	})
	backend.Status.Consumers = nil
	w.updateStatus(backend)
	w.settle(r, w.isKept)
	w.wantRegistered("v1", "v1beta1")
}

// What is kept is kept in order: its caBundle follows the certificates.
func TestKeptVersionFollowsTheCertificates(t *testing.T) {
	t.Parallel()
	w, r := used(t)
	w.change(onlyV1)
	w.settle(r, w.isKept)
	for _, service := range w.apiServices() {
		service.Spec.CABundle = nil
		w.update(&service, client.FieldOwner("somebody"))
	}
	mustReconcile(t, r)
	for _, service := range w.apiServices() {
		if len(service.Spec.CABundle) == 0 {
			t.Errorf("%s has lost its caBundle", service.Name)
		}
	}
	w.wantRegistered("v1", "v1beta1")
}
