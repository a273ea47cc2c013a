// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetricspolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestReconcile(t *testing.T) {
	allow, deny := v1alpha1.ExternalMetricsPolicyRule{Metric: "a.*", Selector: &metav1.LabelSelector{}}, v1alpha1.ExternalMetricsPolicyRule{Metric: "b.*", Deny: true}
	bad := v1alpha1.ExternalMetricsPolicyRule{Metric: "c(", Deny: true}
	cases := map[string]struct {
		rules []v1alpha1.ExternalMetricsPolicyRule
		want  []string
		parts string
	}{
		"good":       {rules: []v1alpha1.ExternalMetricsPolicyRule{allow, deny}, want: []string{"Ready=True Succeeded"}},
		"a bad rule": {rules: []v1alpha1.ExternalMetricsPolicyRule{allow, bad}, want: []string{"Ready=False Invalid", "Stalled=True Invalid"}, parts: "spec.rules[1]"},
		"many bad rules": {
			rules: slices.Repeat([]v1alpha1.ExternalMetricsPolicyRule{{Metric: strings.Repeat("ä(", 300)}}, 100),
			want:  []string{"Ready=False Invalid", "Stalled=True Invalid"}, parts: "spec.rules[0]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kinds := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(kinds); err != nil {
				t.Fatal(err)
			}
			policy := &v1alpha1.ExternalMetricsPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 3}}
			policy.Spec.Rules = tc.rules
			c := fake.NewClientBuilder().WithScheme(kinds).WithObjects(policy).WithStatusSubresource(policy).Build()
			r := &Reconciler{Client: c, Clock: testingclock.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))}
			reconcile := func() *v1alpha1.ExternalMetricsPolicy {
				t.Helper()
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
					t.Fatal(err)
				}
				now := &v1alpha1.ExternalMetricsPolicy{}
				if err := c.Get(t.Context(), client.ObjectKey{Name: "p"}, now); err != nil {
					t.Fatal(err)
				}
				return now
			}
			now := reconcile()
			var got []string
			for _, condition := range now.Status.Conditions {
				got = append(got, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Reason))
				if condition.ObservedGeneration != 3 || !strings.Contains(condition.Message, tc.parts) || len(condition.Message) > maxMessage {
					t.Errorf("%+v, want %q in the message", condition, tc.parts)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || now.Status.ObservedGeneration != 3 {
				t.Errorf("generation %d, (-want +got):\n%s", now.Status.ObservedGeneration, diff)
			}
			if again := reconcile(); again.ResourceVersion != now.ResourceVersion {
				t.Error("written although nothing changed")
			}
			now.Spec.Rules = []v1alpha1.ExternalMetricsPolicyRule{deny}
			if err := c.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			if mended := reconcile(); len(mended.Status.Conditions) != 1 || mended.Status.Conditions[0].Status != metav1.ConditionTrue {
				t.Errorf("after it was corrected: %+v", mended.Status)
			}
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		kinds := runtime.NewScheme()
		if err := v1alpha1.AddToScheme(kinds); err != nil {
			t.Fatal(err)
		}
		r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(kinds).Build(), Clock: testingclock.NewFakeClock(time.Time{})}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
			t.Error(err)
		}
	})
}
