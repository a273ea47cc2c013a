// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// What our pods lack is in the condition and in the status while the APIService stays someone else's.
func TestDifferencesAreReported(t *testing.T) {
	t.Parallel()
	const nodes, pods = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"
	for name, tc := range map[string]struct {
		ours      map[string]string
		condition string
		want      []string
	}{
		"a node is missing": {
			map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}}]}`, pods: `{}`},
			"Our pods lack: 1 of 2 nodes, such as b", []string{"1 of 2 nodes, such as b"},
		},
		"alike":                {map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, pods: `{}`}, "stays theirs", nil},
		"ours does not answer": {nil, "stays theirs", []string{"cannot be compared: list nodes of our pods: ask " + nodes + ": answered 404 Not Found"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend())
			stockCluster(fc)
			fc.theirs = map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, pods: `{}`}
			fc.ours = tc.ours
			fc.reconcileRounds(fc.live(), 20)
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNotOwned, tc.condition)
			status := fc.backend().Status
			if diff := cmp.Diff(tc.want, storedVersion(&status, v1beta1Name).Differences); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

// What was taken over is handed back without waiting for autoscalers, if its previous owner has the metrics that they read.
func TestHandBackBesideAutoscalers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		discovery string
		inactive  bool
		kept      bool
	}{
		"theirs lists the metric":         {discovery: `{"resources":[{"name":"s0-cron"}]}`},
		"theirs does not list the metric": {discovery: `{"resources":[{"name":"another"}]}`, kept: true},
		"which our pods do not have":      {discovery: `{"resources":[{"name":"another"}]}`, inactive: true},
		"theirs does not answer":          {kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend(withAllGroups, func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics.Adoption = v1alpha1.AdoptionAlways }))
			fc.runMetricsServer(2, externalV1beta1)
			replace(externalV1beta1, nil, &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)})(fc)
			r := fc.live()
			fc.reconcileUntil(r, func() bool { return fc.pointsToNow(externalV1beta1) == ourService && fc.isReady() })
			kedasMetric(fc)
			fc.theirs["/apis/external.metrics.k8s.io/v1beta1"] = tc.discovery
			if tc.inactive {
				var autoscaler autoscalingv2.HorizontalPodAutoscaler
				fc.must(fc.raw.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &autoscaler))
				autoscaler.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: "False"}}
				fc.must(fc.raw.Update(t.Context(), &autoscaler))
			}
			fc.consumers = everyPod(hpaOf(apiServiceName(externalV1beta1), fc.today()))
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics = nil })
			fc.reconcileRounds(r, 20)
			if kept := fc.pointsToNow(externalV1beta1) == ourService; kept != tc.kept {
				t.Errorf("kept %t, want %t\n%s", kept, tc.kept, fc.show())
			}
			if !tc.kept {
				fc.wantPointsTo(externalV1beta1, metricsServer)
			}
		})
	}
}
