// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// unserved returns why a request may fail now, or "": each version is registered, and the
// namespace to which kube-apiservers may send its requests has a ready pod, whose
// ServiceAccount is bound.
func (fc *fakeCluster) unserved() string {
	for _, gv := range []string{"v1", "v1beta1"} {
		version := v1
		version.Version = gv
		now := fc.pointsToNow(version)
		if now == "" {
			return gv + " is not registered"
		}
		for _, service := range []string{now, fc.other.pointsTo[version]} {
			namespace, _, _ := strings.Cut(service, "/")
			if namespace == "" {
				continue
			}
			if !slices.ContainsFunc(fc.pods(), func(p corev1.Pod) bool { return p.Namespace == namespace && isReady(&p) }) {
				return fmt.Sprintf("%s points to %s, which has no ready pod", gv, service)
			}
			for name, bound := range fc.subjects() {
				if !slices.Contains(strings.Fields(bound), namespace) {
					return fmt.Sprintf("requests for %s may go to %s, whose account is not bound by %s, only %s", gv, service, name, bound)
				}
			}
		}
	}
	return ""
}

// move assigns the backend to the second operator and reconciles both until done. At no
// time may a request fail, and meanwhile the backend is not ready.
func (fc *fakeCluster) move(first, second *Reconciler, done func() bool) {
	fc.t.Helper()
	fc.assign(secondNamespace)
	for range maxRounds {
		if done() {
			return
		}
		fc.renewLease(systemNamespace)
		for _, r := range []*Reconciler{first, second} {
			mustReconcile(fc.t, r)
			if why := fc.unserved(); why != "" {
				fc.t.Fatalf("%s\n%s", why, fc.show())
			}
			if fc.backend().Status.Installation.MovingFrom != "" && fc.isReady() {
				fc.t.Fatalf("ready in the middle of the move")
			}
		}
		fc.step()
		if why := fc.unserved(); why != "" {
			fc.t.Fatalf("after a step of the cluster: %s\n%s", why, fc.show())
		}
	}
	fc.t.Fatalf("not settled:\n%s", fc.show())
}

// A backend moves to the operator that the annotation names, although the first one runs on:
// pods are started there, APIServices move in place, and then the first namespace is
// emptied. Meanwhile the accounts of both are bound.
func TestMoveToSecondOperator(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "ready", becomeReady)
	uid := fc.apiService(v1beta1).UID
	var firstWrites []string
	first, second := fc.reconciler(counting(&firstWrites)), fc.secondOperator()
	mustReconcile(t, first)
	firstWrites = nil
	fc.assign(secondNamespace)
	mustReconcile(t, second)
	// A client that waits for Ready waits for the move.
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing, "moving from the operator in namespace operator-ns")
	var seen []string
	fc.move(first, second, func() bool {
		state := fmt.Sprintf("%+v; v1 at %s; bound %s", fc.backend().Status.Installation, strings.TrimSuffix(fc.pointsToNow(v1), "/metrics-serving-cluster"),
			fc.subjects()["cluster"])
		if len(seen) == 0 || seen[len(seen)-1] != state {
			seen = append(seen, state)
		}
		return fc.isReady() && fc.backend().Status.Installation == v1alpha1.InstallationStatus{Namespace: secondNamespace}
	})
	want := []string{
		"{Namespace:second-ns MovingFrom:operator-ns Other:}; v1 at operator-ns; bound operator-ns",
		"{Namespace:second-ns MovingFrom:operator-ns Other:}; v1 at operator-ns; bound second-ns operator-ns",
		"{Namespace:second-ns MovingFrom:operator-ns Other:}; v1 at second-ns; bound second-ns operator-ns",
		"{Namespace:second-ns MovingFrom: Other:}; v1 at second-ns; bound second-ns operator-ns",
		"{Namespace:second-ns MovingFrom: Other:}; v1 at second-ns; bound second-ns",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if fc.apiService(v1beta1).UID != uid {
		t.Error("v1beta1 was deleted and created again")
	}
	if left := fc.inventoryOf(systemNamespace); len(left) > 0 {
		t.Errorf("left in the first namespace:\n%s", strings.Join(left, "\n"))
	}
	if len(firstWrites) > 0 {
		t.Errorf("writes of the first operator: %v", firstWrites)
	}
	fc.wantInstallation(secondNamespace)
	wantEvent(t, second, "Normal MoveStarted", "moving from namespace operator-ns to the operator in namespace second-ns")
	wantEvent(t, second, "Normal MoveFinished", "operator-ns")
	// The first one runs on, and is not reported: the user has said which one manages it.
	fc.reconcileRounds(first, 3)
	if !fc.isReady() {
		t.Error(fc.show())
	}
}

// An operator that may not remove everything in the first namespace removes what it may, says what is left there, and ends the
// move when that is gone.
func TestMoveWithoutRights(t *testing.T) {
	t.Parallel()
	const service, role = "Service operator-ns/metrics-serving-cluster", "Role operator-ns/metrics-serving-cluster"
	for name, tc := range map[string]struct {
		mayList func(client.ObjectList) bool
		left    func(before []string) []string
	}{
		"no Role": {
			mayList: func(client.ObjectList) bool { return false },
			left:    func(before []string) []string { return before },
		},
		"a Role without one kind": {
			mayList: func(l client.ObjectList) bool {
				return l.GetObjectKind().GroupVersionKind().Kind != "RoleList"
			},
			left: func([]string) []string { return []string{role, service} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "ready", becomeReady)
			before := slices.DeleteFunc(fc.inventoryOf(systemNamespace), func(line string) bool { return strings.HasPrefix(line, "APIService") })
			second := fc.secondOperator(interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if (&client.ListOptions{}).ApplyOptions(opts).Namespace == systemNamespace && !tc.mayList(l) {
						return apierrors.NewForbidden(appsv1.Resource("any"), "", nil)
					}
					return c.List(ctx, l, opts...)
				},
			})
			fc.move(fc.reconciler(), second, func() bool { return fc.isStalledBy(v1alpha1.ReasonMoveIncomplete) })
			fc.wantPointsTo(v1, secondNamespace+"/metrics-serving-cluster")
			fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonMoveIncomplete,
				"the move from namespace operator-ns is done", "kubectl create rolebinding metrics-backend-move -n operator-ns "+
					"--role=metrics-backend-operator-serving --serviceaccount=second-ns:metrics-backend-operator",
				"kubectl delete -n operator-ns -l metricsbackend.io/backend=cluster poddisruptionbudgets,networkpolicies,deployments,"+
					"secrets,resourcequotas,rolebindings,roles,serviceaccounts,services")
			if diff := cmp.Diff(tc.left(before), fc.inventoryOf(systemNamespace)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(allBoundTo(secondNamespace+" "+systemNamespace), fc.subjects()); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
			fc.delete(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "metrics-serving-cluster"}})
			fc.reconcileUntil(second, fc.isReady)
			if diff := cmp.Diff(allBoundTo(secondNamespace), fc.subjects()); diff != "" {
				t.Errorf("subjects (-want +got):\n%s", diff)
			}
		})
	}
}

// The annotation can name the first operator again in the middle of a move.
func TestMoveTakenBack(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "ready", becomeReady)
	first, second := fc.reconciler(), fc.secondOperator()
	fc.move(first, second, func() bool { return len(fc.inventoryOf(secondNamespace)) > 0 })
	fc.assign(systemNamespace)
	fc.reconcileUntil(first, func() bool {
		mustReconcile(t, second)
		if why := fc.unserved(); why != "" {
			t.Fatal(why)
		}
		return fc.isReady() && fc.backend().Status.Installation == v1alpha1.InstallationStatus{Namespace: systemNamespace}
	})
	fc.wantPointsTo(v1, ourService)
	if left := fc.inventoryOf(secondNamespace); len(left) > 0 {
		t.Errorf("left in the second namespace:\n%s", strings.Join(left, "\n"))
	}
}

// A backend that is deleted in the middle of a move leaves nothing in either namespace.
func TestDeletedDuringMove(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]func(*fakeCluster) bool{
		"before the APIServices move": func(fc *fakeCluster) bool { return len(fc.inventoryOf(secondNamespace)) > 0 },
		"after":                       func(fc *fakeCluster) bool { return fc.pointsToNow(v1) != ourService },
	} {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "ready", becomeReady)
			first, second := fc.reconciler(), fc.secondOperator()
			fc.move(first, second, func() bool { return when(fc) })
			fc.delete(fc.backend())
			fc.reconcileUntil(second, func() bool {
				mustReconcile(t, first)
				return fc.isGone()
			})
			if left := slices.Concat(fc.inventoryOf(systemNamespace), fc.inventoryOf(secondNamespace)); len(left) > 0 || len(fc.apiServices()) > 0 {
				t.Errorf("left:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}
