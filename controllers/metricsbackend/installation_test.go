// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/installation"
)

// secondNamespace is that of another operator.
const secondNamespace = "second-ns"

// secondOperator returns a reconciler of another operator, and creates its namespace.
func (fc *fakeCluster) secondOperator(funcs ...interceptor.Funcs) *Reconciler {
	fc.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: secondNamespace}}
	if fc.raw.Get(context.Background(), client.ObjectKeyFromObject(namespace), namespace) != nil {
		fc.create(namespace)
	}
	o := fc.reconciler(funcs...).Options
	o.Namespace, o.Namespaces = secondNamespace, []string{secondNamespace}
	return New(o)
}

// renewLease renews the Lease of an operator, which runs as long as that is done.
func (fc *fakeCluster) renewLease(namespace string) {
	fc.t.Helper()
	now := metav1.NewMicroTime(fc.clock.Now())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: installation.LeaseName}}
	if fc.raw.Get(context.Background(), client.ObjectKeyFromObject(lease), lease) != nil {
		lease.Spec.RenewTime = &now
		fc.create(lease)
		return
	}
	lease.Spec.RenewTime = &now
	fc.update(lease)
}

// subjects returns the namespaces of the subjects of each binding of the backend that is
// outside of serving's namespace.
func (fc *fakeCluster) subjects() map[string]string {
	fc.t.Helper()
	found := map[string]string{}
	add := func(name string, subjects []rbacv1.Subject) {
		var namespaces []string
		for _, s := range subjects {
			namespaces = append(namespaces, s.Namespace)
		}
		found[strings.TrimPrefix(name, "metrics-serving-")] = strings.Join(namespaces, " ")
	}
	var bindings rbacv1.ClusterRoleBindingList
	fc.list(&bindings)
	for _, b := range bindings.Items {
		add(b.Name, b.Subjects)
	}
	var inSystem rbacv1.RoleBindingList
	fc.list(&inSystem, client.InNamespace(metav1.NamespaceSystem))
	for _, b := range inSystem.Items {
		add(b.Name, b.Subjects)
	}
	return found
}

// allBoundTo returns the subjects of all bindings.
func allBoundTo(namespace string) map[string]string {
	return map[string]string{
		"cluster": namespace, "cluster-prober": namespace, "cluster-scrape": namespace, "cluster-auth-delegator": namespace, "cluster-auth-reader": namespace,
	}
}

// counting records the names of the calls that would write.
func counting(writes *[]string) interceptor.Funcs {
	return intercepted(func(c call, make func() error) error {
		if c.write && c.name != "create token" {
			*writes = append(*writes, c.name)
		}
		return make()
	})
}

// Two operators in two namespaces do not fight: for five minutes, the first one's objects
// stay as they are, and the second one writes once, to say that it is there.
func TestTwoOperators(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "ready", becomeReady)
	var firstWrites, secondWrites []string
	first, second := fc.reconciler(counting(&firstWrites)), fc.secondOperator(counting(&secondWrites))
	mustReconcile(t, first)
	firstWrites = nil
	flips, before := 0, fc.subjects()
	observe := func() {
		if diff := cmp.Diff(before, fc.subjects()); diff != "" {
			flips++
			before = fc.subjects()
		}
	}
	for end := fc.clock.Now().Add(5 * time.Minute); fc.clock.Now().Before(end); {
		fc.renewLease(systemNamespace)
		fc.renewLease(secondNamespace)
		for _, r := range []*Reconciler{second, first} {
			mustReconcile(t, r)
			observe()
		}
		fc.step()
	}
	if flips > 0 {
		t.Errorf("the subjects of bindings changed %d times in five minutes, to %v at last", flips, before)
	}
	if diff := cmp.Diff([]string{patchStatus}, secondWrites); diff != "" {
		t.Errorf("writes of the second operator (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{patchStatus}, firstWrites); diff != "" {
		t.Errorf("writes of the first operator (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(allBoundTo(systemNamespace), fc.subjects()); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	fc.wantPointsTo(v1, ourService)
	for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReady} {
		fc.wantCondition(kind, "", v1alpha1.ReasonOtherInstallation,
			"the operator in namespace operator-ns manages this MetricsBackend, and the one in namespace second-ns changes nothing of it",
			"uninstall one of the two")
	}
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
}

// The report ends with the second operator.
func TestSecondOperatorEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fakeCluster){
		"its Lease is no longer renewed": func(fc *fakeCluster) {
			fc.clock.Step(2 * time.Minute)
		},
		"its Lease is gone": func(fc *fakeCluster) {
			fc.delete(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: secondNamespace, Name: installation.LeaseName}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fc, first := ready(t)
			second := fc.secondOperator()
			fc.renewLease(systemNamespace)
			fc.renewLease(secondNamespace)
			mustReconcile(t, second)
			mustReconcile(t, first)
			if !fc.isStalledBy(v1alpha1.ReasonOtherInstallation) {
				t.Fatalf("not stalled:\n%s", fc.show())
			}
			end(fc)
			mustReconcile(t, first)
			if !fc.isReady() || fc.backend().Status.Installation.Other != "" {
				t.Errorf("still reported:\n%s", fc.show())
			}
			wantEvent(t, first, "Normal Resumed", "no longer stalled by OtherInstallation")
		})
	}
}

// The second operator reports itself by a condition of its own if the first one does not run,
// or writes none. It does so once.
func TestExcludedOperatorReports(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// renews: the first one renews its Lease.
		renews  bool
		writes  int
		message string
	}{
		"the first does not run": {
			writes: 1, message: "the operator in namespace operator-ns manages this MetricsBackend, but does not run",
		},
		// Its ClusterRoleBinding names the second one now. The first write is for it to read.
		"the first has no permissions any more": {renews: true, writes: 2, message: "uninstall one of the two"},
	} {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "ready", becomeReady)
			before := fc.inventoryOf(systemNamespace)
			var writes []string
			second := fc.secondOperator(counting(&writes))
			for range 20 {
				if tc.renews {
					fc.renewLease(systemNamespace)
				}
				mustReconcile(t, second)
				fc.clock.Step(time.Minute)
			}
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOtherInstallation, tc.message)
			if diff := cmp.Diff(slices.Repeat([]string{patchStatus}, tc.writes), writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, fc.inventoryOf(systemNamespace)); diff != "" {
				t.Errorf("objects (-before +after):\n%s", diff)
			}
		})
	}
}

// When the owner stops, the condition says so, whether or not the owner has reported the second operator before.
func TestOwnerStops(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(fc *fakeCluster, owner *Reconciler){
		"before it reports": func(*fakeCluster, *Reconciler) {},
		"after it has": func(fc *fakeCluster, owner *Reconciler) {
			mustReconcile(fc.t, owner)
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOtherInstallation, "uninstall one of the two")
		},
	} {
		t.Run(name, func(t *testing.T) {
			fc, first := ready(t)
			var writes []string
			second := fc.secondOperator(counting(&writes))
			fc.renewLease(systemNamespace)
			fc.renewLease(secondNamespace)
			mustReconcile(t, second)
			stop(fc, first)
			fc.clock.Step(time.Minute)
			mustReconcile(t, second)
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOtherInstallation, "does not run",
				"install the first one again, or delete namespace operator-ns")
			for range 20 {
				fc.clock.Step(time.Minute)
				mustReconcile(t, second)
			}
			if diff := cmp.Diff([]string{patchStatus, patchStatus}, writes); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			fc.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})
			fc.reconcileUntil(second, fc.isReady)
		})
	}
}

// inventoryOf lists the objects of the backend in a namespace.
func (fc *fakeCluster) inventoryOf(namespace string) []string {
	var found []string
	for _, line := range strings.Split(fc.inventory(), "\n") {
		if strings.Contains(line, " "+namespace+"/") {
			found = append(found, line)
		}
	}
	return found
}

// An excluded operator does nothing when the backend is deleted, or its own namespace: the
// first one's order of removal holds.
func TestExcludedOperatorKeepsOut(t *testing.T) {
	t.Parallel()
	t.Run("the backend is deleted", func(t *testing.T) {
		fc, first := ready(t)
		fc.delete(fc.backend())
		var writes []string
		second := fc.secondOperator(counting(&writes))
		fc.renewLease(systemNamespace)
		mustReconcile(t, second)
		fc.wantPointsTo(v1, ourService)
		if diff := cmp.Diff([]string{patchStatus}, writes); diff != "" {
			t.Errorf("writes (-want +got):\n%s", diff)
		}
		fc.reconcileUntil(first, fc.isGone)
	})
	t.Run("its namespace is deleted", func(t *testing.T) {
		fc, _ := ready(t)
		second := fc.secondOperator()
		fc.editAPIService(v1, func(s *apiregistrationv1.APIService) { s.Spec.Service.Namespace = secondNamespace })
		fc.must(second.RetireAll(t.Context()))
		fc.wantRegistered("v1", "v1beta1")
	})
}

// A MetricsBackend that two operators see at once belongs to the one whose record is
// stored first.
func TestOneOfTwoClaims(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend())
	first := fc.reconciler()
	claimed := false
	second := fc.secondOperator(intercepted(func(c call, make func() error) error {
		if c.name == patchStatus && !claimed {
			claimed = true
			// The first operator is faster.
			mustReconcile(t, first)
		}
		return make()
	}))
	mustReconcile(t, second)
	if owner := fc.backend().Status.Installation.Namespace; owner != systemNamespace {
		t.Fatalf("managed by %q", owner)
	}
	fc.reconcileUntil(first, func() bool {
		mustReconcile(t, second)
		return fc.condition(v1alpha1.ConditionAvailable).Status == metav1.ConditionTrue
	})
	if got := fc.inventoryOf(secondNamespace); len(got) > 0 {
		t.Errorf("the second operator made %v", got)
	}
}

// A record is found again after a restore from a backup without the status.
func TestInstallationIsFound(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "ready", becomeReady)
	fc.renewLease(systemNamespace)
	backend := fc.backend()
	backend.Status = v1alpha1.MetricsBackendStatus{}
	fc.updateStatus(backend)
	second := fc.secondOperator()
	mustReconcile(t, second)
	if got := fc.inventoryOf(secondNamespace); len(got) > 0 {
		t.Errorf("the second operator made %v", got)
	}
	first := fc.reconciler()
	fc.reconcileRounds(first, 5)
	if got := fc.backend().Status.Installation.Namespace; got != systemNamespace {
		t.Errorf("managed by %q", got)
	}
	fc.wantInstallation(systemNamespace)
	fc.reconcileUntil(first, fc.isReady)
}

// wantInstallation checks the record on every object that is shared by the cluster.
func (fc *fakeCluster) wantInstallation(namespace string) {
	fc.t.Helper()
	found := 0
	fc.eachStored(func(kind string, o client.Object) {
		shared := o.GetNamespace() == "" || o.GetNamespace() == metav1.NamespaceSystem
		if o.GetLabels()[v1alpha1.LabelBackend] == "" || !shared {
			return
		}
		if found++; o.GetLabels()[v1alpha1.LabelInstallation] != namespace {
			fc.t.Errorf("%s %s is recorded for %q, want %q", kind, o.GetName(), o.GetLabels()[v1alpha1.LabelInstallation], namespace)
		}
	})
	if found < 9 {
		fc.t.Errorf("only %d objects outside of serving's namespace", found)
	}
}

// An operator that may not deploy into spec.serving.namespace gives way to one that may, and one
// that may not keeps silent about a backend that is not for it.
func TestOperatorThatManagesTheNamespace(t *testing.T) {
	t.Parallel()
	backend := newBackend()
	backend.Spec.Serving.Namespace = "third-ns"
	fc := newFakeCluster(t, backend, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "third-ns"}})
	first := fc.reconciler()
	fc.reconcileRounds(first, 3)
	if !fc.isStalledBy(v1alpha1.ReasonNamespaceNotManaged) {
		t.Fatal(fc.show())
	}
	o := fc.secondOperator().Options
	o.Namespaces = []string{"third-ns"}
	second := New(o)
	fc.reconcileUntil(second, func() bool {
		fc.renewLease(systemNamespace)
		mustReconcile(t, first)
		return fc.isReady()
	})
	if got := fc.backend().Status.Installation; got != (v1alpha1.InstallationStatus{Namespace: secondNamespace}) {
		t.Errorf("recorded %+v", got)
	}
}

// Of two operators that may deploy into spec.serving.namespace, one takes the backend from an operator that may not. The other one does
// not take it from that one.
func TestOneOfThreeOperators(t *testing.T) {
	t.Parallel()
	backend := newBackend()
	backend.Spec.Serving.Namespace = "third-ns"
	fc := newFakeCluster(t, backend, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "third-ns"}})
	fc.reconcileRounds(fc.reconciler(), 3)
	o := fc.secondOperator().Options
	o.Namespaces = []string{"third-ns"}
	second := New(o)
	o.Namespace = "third-ns"
	third := New(o)
	for _, r := range []*Reconciler{second, third, third} {
		mustReconcile(t, r)
		if got := fc.backend().Status.Installation.Namespace; got != secondNamespace {
			t.Fatalf("managed by %q", got)
		}
	}
}

// A backend whose operator's namespace is gone goes to another operator by itself.
func TestOperatorNamespaceGone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*fakeCluster){
		"terminating": (*fakeCluster).deleteNamespace,
		"gone": func(fc *fakeCluster) {
			fc.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}})
			fc.delete(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "metrics-serving-cluster"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "ready", becomeReady)
			second := fc.secondOperator()
			end(fc)
			for _, step := range []string{"claims", "marks what has no pods", "retires"} {
				if fc.pointsToNow(v1) != ourService {
					t.Fatalf("retired before the second operator %s", step)
				}
				mustReconcile(t, second)
			}
			fc.wantRegistered([]string(nil)...)
			fc.reconcileUntil(second, fc.isReady)
			fc.wantPointsTo(v1, secondNamespace+"/metrics-serving-cluster")
			if diff := cmp.Diff(allBoundTo(secondNamespace), fc.subjects()); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
		})
	}
}
