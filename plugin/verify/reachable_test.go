// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

func TestPreflight(t *testing.T) {
	const readyz = "/api/v1/namespaces/metrics-backend-system/services/https:metrics-serving-cluster:https/proxy/readyz"
	first := func(w *plugincluster.World) *v1alpha1.MetricsBackend { return &w.Backends[0] }
	// theirs makes v1beta1 someone else's, of which the operator found something.
	theirs := func(change func(*v1alpha1.APIServiceStatus)) func(*plugincluster.World) {
		return func(w *plugincluster.World) {
			w.APIServices = []apiregistrationv1.APIService{*plugincluster.APIService("v1beta1", "", nil)}
			change(&first(w).Status.APIServices[1])
		}
	}
	external := func(change func(*v1alpha1.APIServiceStatus)) func(*plugincluster.World) {
		return func(w *plugincluster.World) {
			w.APIServices = append(w.APIServices, *plugincluster.APIServiceOf("external.metrics.k8s.io", "v1beta1", "", nil))
			status := v1alpha1.APIServiceStatus{Name: "v1beta1.external.metrics.k8s.io", State: v1alpha1.APIServicePending}
			change(&status)
			first(w).Spec.ExternalMetrics = &v1alpha1.ExternalMetricsSpec{}
			first(w).Status.APIServices = append(first(w).Status.APIServices, status)
		}
	}
	cases := map[string]struct {
		change func(*plugincluster.World)
		code   int
		want   []string
	}{
		"reached":       {code: output.OK, want: []string{"pass", "serving-reachable", "kube-apiserver reaches the pods of Service metrics-backend-system/metrics-serving-cluster at port 10250"}},
		"nobody else's": {code: output.OK, want: []string{"skip", "nothing-lost", "no MetricsBackend names a version that someone else serves"}},
		"nothing is lost": {
			change: theirs(func(*v1alpha1.APIServiceStatus) {}), code: output.OK, want: []string{"pass", "nothing-lost", "v1beta1.metrics.k8s.io", "the serving pods answer what"},
		},
		"a node is lost": {
			change: theirs(func(s *v1alpha1.APIServiceStatus) { s.Differences = []string{"1 of 5 nodes, such as e"} }), code: output.OK,
			want: []string{"warn", "do not answer as", "1 of 5 nodes, such as e"},
		},
		"a metric of an autoscaler is lost": {
			change: external(func(s *v1alpha1.APIServiceStatus) {
				s.Differences = []string{"queue (HorizontalPodAutoscaler shop/web): 404"}
			}), code: output.NotMet,
			want: []string{"FAIL", "queue (HorizontalPodAutoscaler shop/web): 404", "add sources and rules for it"},
		},
		"Helm applies it": {
			change: external(func(s *v1alpha1.APIServiceStatus) { s.AppliedBy = "Helm release keda/keda" }), code: output.OK,
			want: []string{"WARN", "it is applied by Helm release keda/keda, whose next change takes it back"},
		},
		"an add-on manager keeps it": {
			change: theirs(func(s *v1alpha1.APIServiceStatus) {
				s.Message = "it is theirs, and the cluster's add-on manager writes it back at any time"
			}),
			code: output.NotMet, want: []string{"FAIL", "writes it back at any time"},
		},
		"not compared": {
			change: func(w *plugincluster.World) {
				theirs(func(*v1alpha1.APIServiceStatus) {})(w)
				w.Condition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, "RollingOut", "waits")
			},
			code: output.NotMet, want: []string{"FAIL", "nothing-lost", "the serving pods are not ready"},
		},
		"not reached": {
			change: func(w *plugincluster.World) { w.Codes[readyz] = http.StatusServiceUnavailable }, code: output.NotMet,
			want: []string{"FAIL", "kube-apiserver does not reach the pods", "kube-apiserver must be able to open TCP connections to port 10250"},
		},
		"no permission": {
			change: func(w *plugincluster.World) { w.Codes[readyz] = http.StatusForbidden }, code: output.NotRun,
			want: []string{readyz, "run it as a user who may"},
		},
		"no pod is ready": {
			change: func(w *plugincluster.World) { first(w).Status.Serving.ReadyReplicas = 0 }, code: output.NotMet,
			want: []string{"it has no ready pod", "next: kubectl metrics-backend status cluster\n"},
		},
		"no status":         {change: func(w *plugincluster.World) { first(w).Status.Serving = nil }, code: output.NotMet, want: []string{"it has no ready pod"}},
		"spec.existing":     {change: func(w *plugincluster.World) { first(w).Spec.Existing = &v1alpha1.ExistingSpec{} }, code: output.OK, want: []string{"spec.existing names an implementation"}},
		"no MetricsBackend": {change: func(w *plugincluster.World) { w.Backends = nil }, code: output.NotMet, want: []string{"there is none", "create one: its pods start"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
			world.Codes = map[string]int{readyz: http.StatusOK}
			if tc.change != nil {
				tc.change(world)
			}
			got, code := verifyText(t, plugincluster.Start(t, world), func(o *options) { o.checks = preflightChecks })
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("no %q in:\n%s", part, got)
				}
			}
			if strings.Contains(got, "apiservice-registered") {
				t.Errorf("other checks were made:\n%s", got)
			}
		})
	}
}
