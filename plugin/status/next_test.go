// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestNextCommands(t *testing.T) {
	const pods = "-n metrics -l metricsbackend.io/backend=cluster"
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	tests := map[string]struct {
		existing   string
		conditions []metav1.Condition
		want       map[string]string
	}{
		"healthy": {
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded),
				condition(v1alpha1.ConditionCertificatesValid, metav1.ConditionTrue, v1alpha1.ReasonRotating),
				condition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, v1alpha1.ReasonConsumersUnknown),
			},
		},
		"in progress": {
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonProgressing),
				condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonProgressing),
				condition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRollingOut),
				condition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady),
			},
		},
		"below the area, not below the summary": {
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed),
				condition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed),
			},
			want: map[string]string{v1alpha1.ConditionServingReady: "kubectl describe pods " + pods},
		},
		"below Stalled, not below Ready": {
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNamespaceMissing),
				condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNamespaceMissing),
			},
			want: map[string]string{v1alpha1.ConditionStalled: "kubectl create namespace metrics"},
		},
		"each of several": {
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonAggregatorUnavailable),
				condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletCertificatesUntrusted),
				condition(v1alpha1.ConditionRulesReady, metav1.ConditionFalse, v1alpha1.ReasonRulesInvalid),
			},
			want: map[string]string{
				v1alpha1.ConditionAvailable:      "kubectl metrics-backend verify",
				v1alpha1.ConditionSourcesHealthy: "kubectl get certificatesigningrequests",
				v1alpha1.ConditionRulesReady:     "kubectl edit metricsbackend cluster",
			},
		},
		"by the operator's log, in its own namespace": {
			conditions: []metav1.Condition{condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForbidden)},
			want:       map[string]string{v1alpha1.ConditionStalled: "kubectl logs -n operators -l app.kubernetes.io/name=metrics-backend-operator --tail=50"},
		},
		"another implementation": {
			existing: "metrics/metrics-server",
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed),
				condition(v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonCertificateMismatch),
			},
			want: map[string]string{
				v1alpha1.ConditionServingReady:      "kubectl logs -n metrics service/metrics-server --tail=50",
				v1alpha1.ConditionCertificatesValid: "kubectl edit metricsbackend cluster",
			},
		},
		"another implementation, of an older version": {
			existing:   "metrics/metrics-server",
			conditions: []metav1.Condition{condition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed)},
			want:       map[string]string{v1alpha1.ConditionServingReady: "kubectl describe service -n metrics metrics-server"},
		},
		"a reason of a newer operator": {
			conditions: []metav1.Condition{
				condition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, "New"),
				condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, "New"),
			},
			want: map[string]string{
				v1alpha1.ConditionServingReady:   "kubectl describe metricsbackend cluster",
				v1alpha1.ConditionSourcesHealthy: "kubectl logs " + pods + " --tail=50",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := &Backend{Name: "cluster", Namespace: "metrics", Existing: tc.existing}
			b.Status.Installation.Namespace = "operators"
			b.Status.Conditions = tc.conditions
			if tc.want == nil {
				tc.want = map[string]string{}
			}
			if diff := cmp.Diff(tc.want, nextCommands(b)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextOfSource(t *testing.T) {
	const edit, log = "kubectl edit metricsbackend cluster", "kubectl logs -n metrics -l metricsbackend.io/backend=cluster --tail=50"
	b := &Backend{Name: "cluster", Namespace: "metrics"}
	got := map[string]string{}
	want := map[string]string{
		"Credentials": "kubectl get secrets -n metrics", "InvalidSpec": edit, "ServiceMissing": edit, "Loop": edit, "Timeout": log, "ServerError": log,
		v1alpha1.ReasonNotYetReported: "",
	}
	for reason := range want {
		got[reason] = nextOfSource(b, reason)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
