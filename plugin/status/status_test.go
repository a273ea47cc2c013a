// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

const years = 365 * 24 * time.Hour

// What is printed of every state that a reader has to tell apart: golden files.
func TestStatus(t *testing.T) {
	cases := map[string]struct {
		change  func(t *testing.T, w *plugincluster.World)
		backend string
		output  string
	}{
		"healthy":         {},
		"healthy as json": {output: "json"},
		"healthy as yaml": {output: "yaml"},
		"no operator": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Backends[0].Status = v1alpha1.MetricsBackendStatus{}
			w.Unregister("v1")
			w.Unregister("v1beta1")
		}},
		"metrics-server": {change: func(_ *testing.T, w *plugincluster.World) { *w = *plugincluster.MetricsServer() }},
		"nothing": {change: func(_ *testing.T, w *plugincluster.World) {
			*w = *plugincluster.MetricsServer()
			w.Unregister("v1beta1")
		}},
		"rollback": {change: func(_ *testing.T, w *plugincluster.World) {
			b := &w.Backends[0]
			const message = "pod metrics-serving-cluster-7f4-qrstu does not serve v1.metrics.k8s.io: its APIService is removed first"
			w.Condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "Progressing", message)
			w.Condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "Progressing", message)
			b.Status.APIServices[0] = v1alpha1.APIServiceStatus{Name: "v1.metrics.k8s.io", State: v1alpha1.APIServiceRetiring, Message: "not all pods serve it"}
			b.Status.Serving.Pods = append(b.Status.Serving.Pods,
				v1alpha1.ServingPodStatus{Name: "metrics-serving-cluster-7f4-qrstu", Image: "metrics-backend/serving:v0.0.9", UpToDate: true, Versions: []string{"v1beta1.metrics.k8s.io"}},
				v1alpha1.ServingPodStatus{Name: "metrics-serving-cluster-7f4-vwxyz", Image: "metrics-backend/serving:v0.0.9", UpToDate: true, Message: "connection refused"})
			b.Status.Serving.Pods[0].UpToDate = false
		}},
		"retired": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Unregister("v1")
			w.Backends[0].Status.APIServices[0] = v1alpha1.APIServiceStatus{Name: "v1.metrics.k8s.io", State: v1alpha1.APIServicePending, Message: "pods of image metrics-backend/serving:v0.0.9 do not serve it"}
		}},
		"stalled": {change: func(_ *testing.T, w *plugincluster.World) {
			const message = "v1beta1.metrics.k8s.io belongs to someone else: set spec.resourceMetrics.adoption"
			w.Condition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, v1alpha1.ReasonNotOwned, "not registered yet: v1beta1.metrics.k8s.io ("+message+")")
			w.Stalled(v1alpha1.ReasonNotOwned, message)
			w.APIServices[1] = *plugincluster.APIService("v1beta1", "", nil)
			w.APIServices[1].Spec.InsecureSkipTLSVerify = true
		}},
		"adopted": {change: func(_ *testing.T, w *plugincluster.World) {
			w.APIServices[0].Annotations = map[string]string{v1alpha1.AnnotationPreviousOwner: "no JSON"}
			w.APIServices[1].Annotations = map[string]string{v1alpha1.AnnotationPreviousOwner: `{"service":{"namespace":"kube-system","name":"metrics-server"},"groupPriorityMinimum":100,"versionPriority":100}`}
		}},
		"existing": {change: func(_ *testing.T, w *plugincluster.World) { *w = *plugincluster.KeptMetricsServer() }},
		"consumers not known": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Backends[0].Status.Consumers = nil
			w.Condition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, v1alpha1.ReasonProbeFailed,
				"pod metrics-serving-cluster-5d8-abcde does not tell who uses which version: answered 403 Forbidden")
		}},
		"no consumers": {change: func(_ *testing.T, w *plugincluster.World) { w.Backends[0].Status.Consumers = nil }},
		"certificates end": {change: func(t *testing.T, w *plugincluster.World) {
			w.Backends[0].Status.Serving.CertificateNotAfter = ptr.To(metav1.NewTime(w.Now.Add(3 * time.Hour)))
			w.APIServices[0].Spec.CABundle = append(plugincluster.Authority(t, w.Now.Add(-years)), plugincluster.Authority(t, w.Now.Add(24*time.Hour))...)
			w.APIServices[1].Spec.CABundle = plugincluster.Authority(t, w.Now.Add(-time.Hour))
		}},
		"certificate ended": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Backends[0].Status.Serving.CertificateNotAfter = ptr.To(metav1.NewTime(w.Now.Add(-time.Hour)))
			w.Condition(v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonCertificateExpired, "the serving certificate has ended")
		}},
		"caBundle unreadable": {change: func(_ *testing.T, w *plugincluster.World) {
			w.APIServices[0].Spec.CABundle = []byte("no PEM")
			w.APIServices[1].Spec.CABundle = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
		}},
		"not available": {change: func(_ *testing.T, w *plugincluster.World) {
			plugincluster.SetAvailable(&w.APIServices[0], false, "MissingEndpoints", "endpoints for service/metrics-serving-cluster have no addresses")
			w.Codes["/apis/metrics.k8s.io/v1beta1/nodes"] = http.StatusServiceUnavailable
			w.APIServices[1].Status.Conditions = nil
		}},
		"deleting": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Backends[0].DeletionTimestamp = ptr.To(metav1.NewTime(w.Now))
			w.APIServices[0].DeletionTimestamp = ptr.To(metav1.NewTime(w.Now))
			w.Condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, "Deleting", "v1.metrics.k8s.io is removed first")
		}},
		"no samples and no right": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Served["v1"].Nodes = nil
			w.Codes["/apis/metrics.k8s.io/v1beta1/nodes"] = http.StatusForbidden
		}},
		"generation not seen": {change: func(_ *testing.T, w *plugincluster.World) { w.Backends[0].Generation++ }},
		"two backends": {change: func(_ *testing.T, w *plugincluster.World) {
			other := plugincluster.Backend("other")
			other.Status.APIServices, other.Status.Serving, other.Status.Consumers = nil, nil, nil
			w.Backends = append(w.Backends, *other)
		}},
		"one of two backends": {backend: "other", change: func(_ *testing.T, w *plugincluster.World) {
			w.Backends = append(w.Backends, *plugincluster.Backend("other"))
		}},
		"sources and rules": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, "SourcesFailing", "1 of 2 sources fail: thanos")
			status := &w.Backends[0].Status
			status.Sources = []v1alpha1.SourceStatus{
				{Name: "prometheus", Healthy: true}, {Name: "thanos", Reason: "Timeout", Message: "no answer within 10s, in 1 of 2 pods"},
			}
			for i := range maxShown + 2 {
				status.Rules = append(status.Rules,
					v1alpha1.RuleStatus{Path: fmt.Sprintf("spec.customMetrics.rules[%d]", i), State: v1alpha1.RuleInvalid, Reason: "Query", Message: "metricsQuery: unclosed left parenthesis"},
					v1alpha1.RuleStatus{Path: fmt.Sprintf("spec.externalMetrics.rules[%d]", i), State: v1alpha1.RuleWarning, Reason: "NoSeries"})
			}
		}},
		"a message that steers the terminal": {change: func(_ *testing.T, w *plugincluster.World) {
			w.Condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletsFailing, "node-a:\x1b[2J\nx509: unknown authority")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
			if tc.change != nil {
				tc.change(t, world)
			}
			c := plugincluster.Start(t, world)
			report, err := read(t.Context(), c.Connection, tc.backend)
			if err != nil {
				t.Fatal(err)
			}
			if tc.output == "" {
				tc.output = "text"
			}
			var out bytes.Buffer
			if err := output.Format(tc.output).Print(&out, report, trees(report, c.Connection.Now())...); err != nil {
				t.Fatal(err)
			}
			plugincluster.Golden(t, strings.ReplaceAll(name, " ", "-")+".txt", out.String())
		})
	}
}

func TestErrors(t *testing.T) {
	cases := map[string]struct {
		change  func(w *plugincluster.World)
		backend string
		want    string
	}{
		"no right to backends": {
			change: func(w *plugincluster.World) {
				w.Codes["/apis/metricsbackend.io/v1alpha1/metricsbackends"] = http.StatusForbidden
			},
			want: `list MetricsBackends: forbidden: User "bob" cannot get path "/apis/metricsbackend.io/v1alpha1/metricsbackends" (the ClusterRole metrics-backend-viewer allows it)`,
		},
		"no right to APIServices": {
			change: func(w *plugincluster.World) {
				w.Codes["/apis/apiregistration.k8s.io/v1/apiservices"] = http.StatusForbidden
			},
			want: `list APIServices: forbidden: User "bob" cannot get path "/apis/apiregistration.k8s.io/v1/apiservices" (you need the permission to list apiservices.apiregistration.k8s.io)`,
		},
		"unknown backend": {
			change:  func(*plugincluster.World) {},
			backend: "other",
			want:    `MetricsBackend "other" not found; there are: cluster`,
		},
		"no backend": {
			change:  func(w *plugincluster.World) { *w = *plugincluster.MetricsServer() },
			backend: "cluster",
			want:    `MetricsBackend "cluster" not found: there is none`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(nil)
			tc.change(world)
			_, err := read(t.Context(), plugincluster.Start(t, world).Connection, tc.backend)
			if err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	if err := output.Format("wide").Validate(); err == nil || err.Error() != `--output "wide": must be text, json or yaml` {
		t.Errorf("an unknown output: %v", err)
	}
}
