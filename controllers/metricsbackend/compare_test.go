// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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
		// theirs are further nodes, as JSON.
		theirs string
	}{
		"a node is missing": {
			map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}}]}`, pods: `{}`},
			"Our pods lack: 1 of 2 nodes, such as b", []string{"1 of 2 nodes, such as b"}, "",
		},
		"alike":                {map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, pods: `{}`}, "stays theirs", nil, ""},
		"ours does not answer": {nil, "stays theirs", []string{"cannot be compared: list nodes of our pods: ask " + nodes + ": answered 404 Not Found"}, ""},
		"a terminal would obey": {
			map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`, pods: `{}`},
			"Our pods lack: 1 of 3 nodes", []string{"1 of 3 nodes, such as c[2J d"}, `,{"metadata":{"name":"c\u001b[2J\nd"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend())
			stockCluster(fc)
			fc.theirs = map[string]string{nodes: `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}` + tc.theirs + `]}`, pods: `{}`}
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
		// reason is why ScalingActive is False, or empty, and hasValue that the autoscaler has one of the metric.
		reason   string
		hasValue bool
		kept     bool
	}{
		"theirs lists the metric":         {discovery: `{"resources":[{"name":"s0-cron"}]}`},
		"theirs does not list the metric": {discovery: `{"resources":[{"name":"another"}]}`, kept: true},
		"which our pods do not have":      {discovery: `{"resources":[{"name":"another"}]}`, reason: "FailedGetExternalMetric"},
		"another metric fails":            {discovery: `{"resources":[{"name":"another"}]}`, reason: "FailedGetResourceMetric", hasValue: true, kept: true},
		"its workload has no replicas":    {discovery: `{"resources":[{"name":"another"}]}`, reason: "ScalingDisabled", kept: true},
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
			if tc.reason != "" {
				var autoscaler autoscalingv2.HorizontalPodAutoscaler
				fc.must(fc.raw.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "web"}, &autoscaler))
				autoscaler.Status = autoscalerStatus(tc.reason, fc.clock.Now().Add(-valuesMissing), tc.hasValue)
				fc.must(fc.raw.Update(t.Context(), &autoscaler))
			}
			fc.consumers = everyPod(hpaOf(apiServiceName(externalV1beta1), fc.today()))
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics = nil })
			fc.reconcileRounds(r, 20)
			fc.clock.Step(previousRecheck)
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

// autoscalerStatus is of an autoscaler whose ScalingActive is False, by which of its metrics have a value.
func autoscalerStatus(reason string, since time.Time, values ...bool) autoscalingv2.HorizontalPodAutoscalerStatus {
	status := autoscalingv2.HorizontalPodAutoscalerStatus{Conditions: []autoscalingv2.HorizontalPodAutoscalerCondition{
		{Type: autoscalingv2.AbleToScale, Status: "True", Reason: "SucceededGetScale"},
		{Type: autoscalingv2.ScalingActive, Status: "False", Reason: reason, LastTransitionTime: metav1.NewTime(since)},
	}}
	for _, has := range values {
		current := autoscalingv2.MetricStatus{}
		if has {
			current.Type = autoscalingv2.ExternalMetricSourceType
		}
		status.CurrentMetrics = append(status.CurrentMetrics, current)
	}
	return status
}

// An autoscaler can do without those of its metrics alone of which it has got no value for ten minutes.
func TestMetricsWithValues(t *testing.T) {
	t.Parallel()
	const failed = "FailedGetExternalMetric"
	for name, tc := range map[string]struct {
		reason string
		since  time.Duration
		values []bool
		want   []string
	}{
		"one has none":             {failed, time.Hour, []bool{true, false}, []string{"a"}},
		"none has one":             {failed, time.Hour, []bool{false, false}, nil},
		"for a short time":         {failed, 9 * time.Minute, []bool{false, false}, []string{"a", "b"}},
		"no replicas":              {"ScalingDisabled", time.Hour, nil, []string{"a", "b"}},
		"a selector is missing":    {"InvalidSelector", time.Hour, nil, []string{"a", "b"}},
		"nothing is known of b":    {failed, time.Hour, []bool{false}, []string{"b"}},
		"no condition, as created": {"", 0, nil, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend())
			s := fc.reconciler().newState(fc.backend())
			var autoscaler autoscalingv2.HorizontalPodAutoscaler
			for _, name := range []string{"a", "b"} {
				autoscaler.Spec.Metrics = append(autoscaler.Spec.Metrics, autoscalingv2.MetricSpec{External: &autoscalingv2.ExternalMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: name}}})
			}
			if tc.reason != "" {
				autoscaler.Status = autoscalerStatus(tc.reason, s.now.Add(-tc.since), tc.values...)
			}
			// At first it may only have replicas again after hours without.
			for _, want := range [][]string{{"a", "b"}, tc.want} {
				var got []string
				for _, m := range s.metricsWithValues(&autoscaler) {
					got = append(got, m.External.Metric.Name)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				fc.clock.Step(previousRecheck)
			}
		})
	}
}

// A previous owner that lacks what autoscalers read is asked again after a while, not in each reconciliation.
func TestPreviousOwnerIsAskedNowAndThen(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(withAllGroups, func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics.Adoption = v1alpha1.AdoptionAlways }))
	fc.runMetricsServer(2, externalV1beta1)
	replace(externalV1beta1, nil, &apiregistrationv1.ServiceReference{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)})(fc)
	lists := 0
	r := fc.live(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*autoscalingv2.HorizontalPodAutoscalerList); ok {
			lists++
		}
		return c.List(ctx, list, opts...)
	}})
	fc.reconcileUntil(r, func() bool { return fc.pointsToNow(externalV1beta1) == ourService && fc.isReady() })
	kedasMetric(fc)
	fc.theirs["/apis/external.metrics.k8s.io/v1beta1"] = `{"resources":[{"name":"another"}]}`
	fc.consumers = everyPod(hpaOf(apiServiceName(externalV1beta1), fc.today()))
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ExternalMetrics = nil })
	fc.reconcileUntil(r, fc.isKept)
	lists = 0
	begin := fc.clock.Now()
	for fc.clock.Now().Sub(begin) < 10*previousRecheck {
		mustReconcile(t, r)
		fc.clock.Step(stalledResync)
	}
	if lists < 8 || lists > 10 {
		t.Errorf("listed autoscalers %d times in %s", lists, 10*previousRecheck)
	}
	remembered := func() (n int) {
		r.history(backendName).streaks.ResetFunc(func(key stateKey) bool {
			if key.state == previousLacking || key.state == autoscalerFailing {
				n++
			}
			return false
		})
		return n
	}
	if remembered() == 0 {
		t.Error("nothing is remembered while a version is kept")
	}
	fc.change(withAllGroups)
	fc.reconcileUntil(r, fc.isReady)
	if n := remembered(); n != 0 {
		t.Errorf("%d states are remembered although nothing is kept", n)
	}
}
