// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"
	"testing"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// rivals apply metrics-server's APIService over and over.
func rivals() map[string]func(*world) {
	return map[string]func(*world){
		// As Argo CD, Flux and kubectl apply --server-side do.
		"server-side apply": func(w *world) {
			stock := stockAPIService()
			w.must(w.raw.Apply(context.Background(), apiregistrationv1ac.APIService(stock.Name).
				WithLabels(stock.Labels).
				WithSpec(apiregistrationv1ac.APIServiceSpec().
					WithGroup(stock.Spec.Group).WithVersion(stock.Spec.Version).
					WithGroupPriorityMinimum(stock.Spec.GroupPriorityMinimum).WithVersionPriority(stock.Spec.VersionPriority).
					WithCABundle(stock.Spec.CABundle...).
					WithService(apiregistrationv1ac.ServiceReference().WithNamespace("kube-system").WithName("metrics-server").WithPort(443))),
				client.FieldOwner("gitops-controller"), client.ForceOwnership))
		},
		// As kubectl replace and helm upgrade --force do: our label goes, too.
		"update": func(w *world) {
			live := w.apiService(v1beta1)
			stock := stockAPIService()
			stock.UID, stock.ResourceVersion = live.UID, live.ResourceVersion
			w.must(w.raw.Update(context.Background(), stock, client.FieldOwner("gitops-controller")))
		},
	}
}

// fight lets the rival write after each of our writes, and counts ours.
func (w *world) fight(r *Reconciler, rival func(*world), rounds int) int {
	w.t.Helper()
	ours := 0
	for range rounds {
		mustReconcile(w.t, r)
		if w.leadsNow(v1beta1) == ourService {
			ours++
			rival(w)
		}
		w.step()
	}
	return ours
}

// The operator does not fight on for ever: it says who changes the APIService back,
// and tries again hours later. When the rival stops, it has it.
func TestContested(t *testing.T) {
	for name, rival := range rivals() {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "adopted", adoptedWorld)
			w.theirs.watched = false
			r := w.live(interceptor.Funcs{})
			rival(w)
			const rounds = 60
			if ours := w.fight(r, rival, rounds); ours != contestLimit {
				t.Errorf("%d writes, want %d", ours, contestLimit)
			}
			w.isContested(t)
			w.clock.Step(contestWindow)
			if ours := w.fight(r, rival, rounds); ours != 1 {
				t.Errorf("%d writes in the next %s, want 1", ours, contestWindow)
			}
			w.isContested(t)
			if got := w.ofV1(); got != ourService {
				t.Errorf("v1 leads to %q, want it left alone", got)
			}
			// The rival has stopped, and left its APIService behind.
			w.clock.Step(contestWindow)
			w.settleContest(r)
			w.clock.Step(contestWindow)
			mustReconcile(t, r)
			mustReconcile(t, r)
			// Forgotten: a later change is corrected as at first.
			rival(w)
			if ours := w.fight(r, rival, rounds); ours != contestLimit {
				t.Errorf("%d writes in a later contest, want %d", ours, contestLimit)
			}
		})
	}
}

// Who replaces the APIService of an implementation that someone else runs with its
// stock manifest takes nothing but our label away.
func TestContestedLabel(t *testing.T) {
	w := prepared(t, "existing", existingWorld)
	r := w.live(interceptor.Funcs{})
	ours := 0
	for range 60 {
		mustReconcile(t, r)
		if live := w.apiService(v1beta1); live.Labels[v1alpha1.LabelBackend] == backendName {
			ours++
			stock := live.DeepCopy()
			stock.Labels, stock.Annotations = stockAPIService().Labels, nil
			w.must(w.raw.Update(context.Background(), stock, client.FieldOwner("kubectl")))
		}
		w.step()
	}
	// The first is that of the beginning.
	if ours != contestLimit+1 {
		t.Errorf("%d writes, want %d", ours-1, contestLimit)
	}
	if c := w.condition(v1alpha1.ConditionStalled); c.Reason != v1alpha1.ReasonContested || !strings.Contains(c.Message, `field manager "kubectl"`) {
		t.Errorf("Stalled is %+v", c)
	}
}

func (w *world) ofV1() string { return w.leadsNow(v1) }

func (w *world) isContested(t *testing.T) {
	t.Helper()
	c := w.condition(v1alpha1.ConditionStalled)
	for _, part := range []string{`field manager "gitops-controller" keeps changing it back, to Service kube-system/metrics-server`, "kubectl delete apiservice v1beta1.metrics.k8s.io"} {
		if c.Reason != v1alpha1.ReasonContested || !strings.Contains(c.Message, part) {
			t.Fatalf("Stalled is %+v, want Contested with %q", c, part)
		}
	}
	if got := w.leadsNow(v1beta1); got != metricsServer {
		t.Fatalf("v1beta1 leads to %s", got)
	}
}

// settleContest waits until the backend is ready, the aggregator being content
// also with an APIService that was replaced.
func (w *world) settleContest(r *Reconciler) {
	w.t.Helper()
	w.settle(r, func() bool { return w.leadsNow(v1beta1) == ourService })
	w.settleAfterTakeover(r)
}

// Whoever registers our own Service with a priority or a label of their own is not
// fought for ever either.
func TestContestedBesidesTheService(t *testing.T) {
	rivals := map[string]func(*apiregistrationv1.APIService){
		"priority of the version": func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority = 15 },
		"priority of the group":   func(s *apiregistrationv1.APIService) { s.Spec.GroupPriorityMinimum = 2000 },
		"label":                   func(s *apiregistrationv1.APIService) { s.Labels["app.kubernetes.io/managed-by"] = "Helm" },
	}
	for name, change := range rivals {
		t.Run(name, func(t *testing.T) {
			w, _ := ready(t, interceptor.Funcs{})
			r := w.live(interceptor.Funcs{})
			want := w.apiService(v1)
			writes := 0
			for range 60 {
				mustReconcile(t, r)
				live := w.apiService(v1)
				if live.Spec.VersionPriority == want.Spec.VersionPriority && live.Spec.GroupPriorityMinimum == want.Spec.GroupPriorityMinimum &&
					live.Labels["app.kubernetes.io/managed-by"] == want.Labels["app.kubernetes.io/managed-by"] {
					writes++
					change(live)
					w.must(w.raw.Update(context.Background(), live, client.FieldOwner("gitops-controller")))
				}
				w.step()
			}
			// The first is that of the beginning.
			if writes != contestLimit+1 {
				t.Errorf("%d writes, want %d", writes-1, contestLimit)
			}
			c := w.condition(v1alpha1.ConditionStalled)
			if c.Reason != v1alpha1.ReasonContested || !strings.Contains(c.Message, `field manager "gitops-controller" keeps changing it back, so`) {
				t.Errorf("Stalled is %+v", c)
			}
		})
	}
}

// What ends a contest at once.
func TestContestEnds(t *testing.T) {
	cases := map[string]func(*world){
		"APIService deleted": func(w *world) { w.must(w.raw.Delete(context.Background(), w.apiService(v1beta1))) },
		"spec changed":       func(w *world) { w.change(func(*v1alpha1.MetricsBackendSpec) {}) },
	}
	for name, happen := range cases {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "adopted", adoptedWorld)
			w.theirs.watched = false
			r := w.live(interceptor.Funcs{})
			rival := rivals()["server-side apply"]
			rival(w)
			w.fight(r, rival, 20)
			w.isContested(t)
			happen(w)
			w.settleContest(r)
		})
	}
}

// A new process does not begin the fight anew.
func TestContestSurvivesRestart(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	w.theirs.watched = false
	rival := rivals()["server-side apply"]
	rival(w)
	w.fight(w.live(interceptor.Funcs{}), rival, 20)
	w.isContested(t)
	if ours := w.fight(w.live(interceptor.Funcs{}), rival, 20); ours != 0 {
		t.Errorf("%d writes after the restart", ours)
	}
	w.isContested(t)
}

// A single edit by hand is corrected, whoever made it and whatever it was, and is
// no contest.
func TestEditIsCorrected(t *testing.T) {
	cases := map[string]func(*apiregistrationv1.APIService){
		"caBundle blanked": func(s *apiregistrationv1.APIService) { s.Spec.CABundle = nil },
		"caBundle changed": func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("OTHER") },
		"not verified": func(s *apiregistrationv1.APIService) {
			s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = nil, true
		},
		"other Service":  func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "other" },
		"other port":     func(s *apiregistrationv1.APIService) { s.Spec.Service.Port = nil },
		"other priority": func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority = 1 },
	}
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			w, _ := ready(t, interceptor.Funcs{})
			r := w.live(interceptor.Funcs{})
			want := w.apiService(v1).Spec
			live := w.apiService(v1)
			edit(live)
			w.must(w.raw.Update(context.Background(), live, client.FieldOwner("kubectl-edit")))
			w.settle(r, func() bool {
				got := w.apiService(v1).Spec
				return leadsTo(w.apiService(v1), r.newScope(w.backend()).serving.Target(nil)) &&
					string(got.CABundle) == string(want.CABundle) && got.VersionPriority == want.VersionPriority
			})
			w.settle(r, w.isReady)
		})
	}
}

// The count is by rival, and forgets what was long ago.
func TestContend(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	m := newMemory()
	try := func(rival string) bool { return m.contend("b", "a", rival, 1, false, now) }
	for range contestLimit - 1 {
		if !try("one") {
			t.Fatal("refused below the limit")
		}
	}
	now = now.Add(contestWindow)
	for i := range contestLimit {
		if !try("one") || i == 0 && !try("other") {
			t.Fatalf("refused write %d in a new window", i)
		}
	}
	if try("one") || try("other") {
		t.Error("allowed after the contest was lost")
	}
	if !m.contend("b", "a", "one", 2, true, now) {
		t.Error("refused after the spec changed")
	}
	if newMemory().contend("b", "a", "one", 1, true, now) {
		t.Error("allowed by a new process")
	}
}

// Leaving the version to the rival takes it from no client, so it waits for none:
// the operator writes nothing against the rival again.
func TestContestIsGivenUp(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	w.theirs.watched = false
	w.consumers = everyPod(hpaOf(v1beta1Name, w.today()))
	r := w.live(interceptor.Funcs{})
	mustReconcile(t, r)
	rival := rivals()["server-side apply"]
	rival(w)
	w.fight(r, rival, 20)
	w.isContested(t)
	w.change(onlyV1)
	if ours := w.fight(r, rival, 20); ours != 0 {
		t.Errorf("%d writes against whom the version was left to", ours)
	}
	w.settleAfterTakeover(r)
	if got, label := w.leadsNow(v1beta1), w.apiService(v1beta1).Labels[v1alpha1.LabelBackend]; got != metricsServer || label != "" {
		t.Errorf("v1beta1 leads to %q, with label %q", got, label)
	}
	if c := w.condition(v1alpha1.ConditionConsumersCompatible); c.Status == "False" {
		t.Errorf("ConsumersCompatible is %+v", c)
	}
}
