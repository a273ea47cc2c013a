// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// fieldManagers apply metrics-server's APIService again and again.
func fieldManagers() map[string]func(*fakeCluster) {
	return map[string]func(*fakeCluster){
		// As Argo CD, Flux and kubectl apply --server-side do.
		"server-side apply": func(fc *fakeCluster) {
			stock := stockAPIService()
			fc.must(fc.raw.Apply(context.Background(), apiregistrationv1ac.APIService(stock.Name).
				WithLabels(stock.Labels).
				WithSpec(apiregistrationv1ac.APIServiceSpec().
					WithGroup(stock.Spec.Group).WithVersion(stock.Spec.Version).
					WithGroupPriorityMinimum(stock.Spec.GroupPriorityMinimum).WithVersionPriority(stock.Spec.VersionPriority).
					WithCABundle(stock.Spec.CABundle...).
					WithService(apiregistrationv1ac.ServiceReference().WithNamespace("kube-system").WithName("metrics-server").WithPort(443))),
				client.FieldOwner("gitops-controller"), client.ForceOwnership))
		},
		// As kubectl replace and helm upgrade --force do: our label is removed, too.
		"update": func(fc *fakeCluster) {
			live := fc.apiService(v1beta1)
			stock := stockAPIService()
			stock.UID, stock.ResourceVersion = live.UID, live.ResourceVersion
			fc.update(stock, client.FieldOwner("gitops-controller"))
		},
	}
}

// countWritesAgainst lets the other write after each of our writes, and counts ours.
func (fc *fakeCluster) countWritesAgainst(r *Reconciler, other func(*fakeCluster), rounds int) int {
	fc.t.Helper()
	return fc.countWrites(r, func() bool { return fc.pointsToNow(v1beta1) == ourService }, other, rounds)
}

// countWrites is countWritesAgainst for any field; ours reports whether it is as we wrote
// it.
func (fc *fakeCluster) countWrites(r *Reconciler, ours func() bool, other func(*fakeCluster), rounds int) int {
	fc.t.Helper()
	writes := 0
	for range rounds {
		mustReconcile(fc.t, r)
		if ours() {
			writes++
			other(fc)
		}
		fc.step()
	}
	return writes
}

// The operator stops after lifecycle.ContestLimit writes, names the other manager, and tries again
// after lifecycle.ContestWindow. It takes over once the other manager stops.
func TestContested(t *testing.T) {
	t.Parallel()
	for name, other := range sampled(t, fieldManagers()) {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "adopted", adoptedCluster)
			fc.other.checked = false
			r := fc.live()
			mustReconcile(t, r)
			other(fc)
			const rounds = 60
			if ours := fc.countWritesAgainst(r, other, rounds); ours != lifecycle.ContestLimit {
				t.Errorf("%d writes, want %d", ours, lifecycle.ContestLimit)
			}
			fc.isContested(t)
			fc.clock.Step(lifecycle.ContestWindow)
			if ours := fc.countWritesAgainst(r, other, rounds); ours != 1 {
				t.Errorf("%d writes in the next %s, want 1", ours, lifecycle.ContestWindow)
			}
			fc.isContested(t)
			fc.wantPointsTo(v1, ourService)
			// The other manager has stopped, and its APIService is left.
			fc.clock.Step(lifecycle.ContestWindow)
			fc.resolveContest(r)
			fc.clock.Step(lifecycle.ContestWindow)
			mustReconcile(t, r)
			mustReconcile(t, r)
			// A later change is corrected as the first one was.
			other(fc)
			if ours := fc.countWritesAgainst(r, other, rounds); ours != lifecycle.ContestLimit {
				t.Errorf("%d writes in a later contest, want %d", ours, lifecycle.ContestLimit)
			}
		})
	}
}

// Replacing the APIService of spec.existing with the stock manifest removes nothing but
// our label, and is a contest too.
func TestContestedLabel(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	r := fc.live()
	ours := func() bool { return fc.apiService(v1beta1).Labels[v1alpha1.LabelBackend] == backendName }
	other := func(fc *fakeCluster) {
		live := fc.apiService(v1beta1)
		live.Labels, live.Annotations = stockAPIService().Labels, nil
		fc.update(live, client.FieldOwner("kubectl"))
	}
	// One more for the initial write.
	if writes := fc.countWrites(r, ours, other, 60); writes != lifecycle.ContestLimit+1 {
		t.Errorf("%d writes, want %d", writes-1, lifecycle.ContestLimit)
	}
	fc.wantCondition(v1alpha1.ConditionStalled, "", v1alpha1.ReasonContested, `field manager "kubectl"`)
}

func (fc *fakeCluster) isContested(t *testing.T) {
	t.Helper()
	fc.wantCondition(v1alpha1.ConditionStalled, "", v1alpha1.ReasonContested,
		`field manager "gitops-controller" keeps changing it back, to Service kube-system/metrics-server`, "kubectl delete apiservice v1beta1.metrics.k8s.io")
	fc.wantPointsTo(v1beta1, metricsServer)
}

// resolveContest reconciles until the backend is ready, with an aggregator that also
// reports a replaced APIService available.
func (fc *fakeCluster) resolveContest(r *Reconciler) {
	fc.t.Helper()
	fc.reconcileUntil(r, func() bool { return fc.pointsToNow(v1beta1) == ourService })
	fc.reconcileThroughTakeover(r)
}

// A contest over the priority or a label of an APIService that points to our Service ends
// too.
func TestContestedBesidesTheService(t *testing.T) {
	t.Parallel()
	rivals := map[string]func(*apiregistrationv1.APIService){
		"priority of the version": func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority = 15 },
		"priority of the group":   func(s *apiregistrationv1.APIService) { s.Spec.GroupPriorityMinimum = 2000 },
		"label":                   func(s *apiregistrationv1.APIService) { s.Labels["app.kubernetes.io/managed-by"] = "Helm" },
	}
	for name, change := range sampled(t, rivals) {
		t.Run(name, func(t *testing.T) {
			fc, _ := ready(t)
			r := fc.live()
			want := fc.apiService(v1)
			ours := func() bool {
				live := fc.apiService(v1)
				return live.Spec.VersionPriority == want.Spec.VersionPriority && live.Spec.GroupPriorityMinimum == want.Spec.GroupPriorityMinimum &&
					live.Labels["app.kubernetes.io/managed-by"] == want.Labels["app.kubernetes.io/managed-by"]
			}
			// One more for the initial write.
			if writes := fc.countWrites(r, ours, func(fc *fakeCluster) { fc.editAPIService(v1, change) }, 60); writes != lifecycle.ContestLimit+1 {
				t.Errorf("%d writes, want %d", writes-1, lifecycle.ContestLimit)
			}
			fc.wantCondition(v1alpha1.ConditionStalled, "", v1alpha1.ReasonContested, `field manager "kubectl-edit" keeps changing it back, so`)
		})
	}
}

// TestContestEnds checks what ends a contest at once.
func TestContestEnds(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*fakeCluster){
		"APIService deleted": func(fc *fakeCluster) { fc.delete(fc.apiService(v1beta1)) },
		"spec changed":       func(fc *fakeCluster) { fc.change(func(*v1alpha1.MetricsBackendSpec) {}) },
	}
	for name, happen := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "adopted", adoptedCluster)
			fc.other.checked = false
			r := fc.live()
			other := fieldManagers()["server-side apply"]
			other(fc)
			fc.countWritesAgainst(r, other, 20)
			fc.isContested(t)
			happen(fc)
			fc.resolveContest(r)
		})
	}
}

// A new process does not start the contest over.
func TestContestSurvivesRestart(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "adopted", adoptedCluster)
	fc.other.checked = false
	other := fieldManagers()["server-side apply"]
	other(fc)
	fc.countWritesAgainst(fc.live(), other, 20)
	fc.isContested(t)
	if ours := fc.countWritesAgainst(fc.live(), other, 20); ours != 0 {
		t.Errorf("%d writes after the restart", ours)
	}
	fc.isContested(t)
}

// A single edit, of any field by any manager, is corrected and is no contest.
func TestEditIsCorrected(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*apiregistrationv1.APIService){
		"caBundle blanked": func(s *apiregistrationv1.APIService) { s.Spec.CABundle = nil },
		"caBundle changed": func(s *apiregistrationv1.APIService) { s.Spec.CABundle = []byte("OTHER") },
		"not verified": func(s *apiregistrationv1.APIService) {
			s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = nil, true
		},
		"other Service":    func(s *apiregistrationv1.APIService) { s.Spec.Service.Name = "other" },
		"other port":       func(s *apiregistrationv1.APIService) { s.Spec.Service.Port = nil },
		"other priorities": func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority, s.Spec.GroupPriorityMinimum = 1, 1 },
	}
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			fc, _ := ready(t)
			r := fc.live()
			want := fc.apiService(v1).Spec
			fc.editAPIService(v1, edit)
			fc.reconcileUntil(r, func() bool {
				got := fc.apiService(v1).Spec
				return r.newState(fc.backend()).identity().PointsToTarget(fc.apiService(v1)) &&
					string(got.CABundle) == string(want.CABundle) &&
					got.VersionPriority == want.VersionPriority && got.GroupPriorityMinimum == want.GroupPriorityMinimum
			})
			fc.reconcileUntil(r, fc.isReady)
		})
	}
}

// Leaving the version to the other manager takes it from no client, so the removal does
// not wait for clients, and nothing is written any more.
func TestContestEndsWhenTheVersionLeavesTheSpec(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "adopted", adoptedCluster)
	fc.other.checked = false
	fc.consumers = everyPod(hpaOf(v1beta1Name, fc.today()))
	r := fc.live()
	mustReconcile(t, r)
	other := fieldManagers()["server-side apply"]
	other(fc)
	fc.countWritesAgainst(r, other, 20)
	fc.isContested(t)
	fc.change(onlyV1)
	if ours := fc.countWritesAgainst(r, other, 20); ours != 0 {
		t.Errorf("%d writes against whom the version was left to", ours)
	}
	fc.reconcileThroughTakeover(r)
	if got, label := fc.pointsToNow(v1beta1), fc.apiService(v1beta1).Labels[v1alpha1.LabelBackend]; got != metricsServer || label != "" {
		t.Errorf("v1beta1 points to %q, with label %q", got, label)
	}
	if c := fc.condition(v1alpha1.ConditionConsumersCompatible); c.Status == "False" {
		t.Errorf("ConsumersCompatible is %+v", c)
	}
}
