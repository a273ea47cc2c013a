// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// Every line that is not PASS, for everything that can be wrong: golden files in
// testdata/lines.
func TestLines(t *testing.T) {
	const apis = "/apis/metrics.k8s.io/"
	cases := map[string]struct {
		change  func(w *plugincluster.World)
		options func(*options)
		timeout time.Duration
	}{
		"stale v1": {
			// A rollback that forgot the APIService: it is there, and nothing serves it.
			change: func(w *plugincluster.World) {
				plugincluster.SetAvailable(&w.APIServices[0], false, "FailedDiscoveryCheck", "failing or missing response: 404")
				w.Backends = nil
				w.APIServices[0].Labels, w.APIServices[1].Labels = nil, nil
				w.Current, w.Stale = []string{"v1beta1"}, []string{"v1"}
				delete(w.Served, "v1")
				w.Metrics = strings.Replace(w.Metrics, `{name="v1.metrics.k8s.io"} 0`, `{name="v1.metrics.k8s.io"} 1`, 1)
			},
			options: func(o *options) { o.expect = []string{"v1beta1"} },
		},
		"v1 is served and not expected": {
			change: func(w *plugincluster.World) {
				w.Backends = nil
				w.APIServices[0].Labels, w.APIServices[1].Labels = nil, nil
			},
			options: func(o *options) { o.expect = []string{"v1beta1"} },
		},
		"stale v1 of a backend": {change: func(w *plugincluster.World) {
			w.Backends[0].Spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{"v1beta1"}
			w.Condition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionFalse, v1alpha1.ReasonConsumersActive, "v1.metrics.k8s.io was used today or yesterday by kubectl of alice")
			w.Stalled(v1alpha1.ReasonConsumersActive, "v1.metrics.k8s.io was used today or yesterday by kubectl of alice")
		}},
		"not available": {change: func(w *plugincluster.World) {
			for i := range w.APIServices {
				plugincluster.SetAvailable(&w.APIServices[i], false, "MissingEndpoints", "endpoints for service/metrics-serving-cluster have no addresses")
			}
			w.Reconciling(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonAggregatorUnavailable,
				"v1.metrics.k8s.io is reported unavailable by kube-apiserver (MissingEndpoints): kubectl describe apiservice v1.metrics.k8s.io")
			w.Current, w.Stale = nil, []string{"v1", "v1beta1"}
			for _, path := range []string{"v1", "v1/nodes", "v1/pods", "v1beta1", "v1beta1/nodes", "v1beta1/pods"} {
				w.Codes[apis+path] = http.StatusServiceUnavailable
			}
			w.Metrics = strings.ReplaceAll(w.Metrics, `.metrics.k8s.io"} 0`, `.metrics.k8s.io"} 1`)
			w.Autoscalers[0] = *plugincluster.Autoscaler("web", corev1.ConditionFalse, "FailedGetResourceMetric", "the server is currently unable to handle the request")
		}},
		"port closed": {change: func(w *plugincluster.World) { closePort(w) }},
		"port of the nodes closed": {change: func(w *plugincluster.World) {
			closePort(w)
			w.Backends[0].Spec.Serving.HostNetwork = true
		}},
		"port of another implementation closed": {change: func(w *plugincluster.World) {
			*w = *plugincluster.MetricsServer()
			closePort(w)
		}},
		"missing version": {change: func(w *plugincluster.World) { w.Unregister("v1") }},
		"missing version of a rollback": {change: func(w *plugincluster.World) {
			w.Backends = nil
			w.Unregister("v1beta1")
		}},
		"nothing at all": {change: func(w *plugincluster.World) {
			*w = *plugincluster.MetricsServer()
			w.Unregister("v1beta1")
			w.Served = nil
		}},
		"no data": {change: func(w *plugincluster.World) {
			for _, data := range w.Served {
				data.Nodes, data.Pods = nil, nil
			}
		}},
		"old data": {change: func(w *plugincluster.World) { w.Now = w.Now.Add(10 * time.Minute) }},
		"old data is fresh enough": {
			change:  func(w *plugincluster.World) { w.Now = w.Now.Add(10 * time.Minute) },
			options: func(o *options) { o.maxAge = time.Hour },
		},
		"old data by the spec": {change: func(w *plugincluster.World) {
			w.Backends[0].Spec.ResourceMetrics.MaxSampleAge = &metav1.Duration{Duration: 12 * time.Second}
			for _, data := range w.Served {
				data.Nodes["node-a"] = w.Now.Add(-13 * time.Second)
			}
		}},
		"one node is missing": {change: func(w *plugincluster.World) {
			for _, data := range w.Served {
				delete(data.Nodes, "node-b")
			}
			w.Condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionFalse, v1alpha1.ReasonKubeletsFailing, "1 of 2 kubelets fail: node-b")
		}},
		"metrics left out": {change: func(w *plugincluster.World) {
			w.Backends[0].Status.Rules = []v1alpha1.RuleStatus{
				{Path: "spec.customMetrics.rules[0]", State: v1alpha1.RuleWarning, Reason: v1alpha1.ReasonOmittedFromDiscovery, Message: "20 metrics are not in discovery"},
				{Path: "spec.customMetrics.rules[1]", State: v1alpha1.RuleWarning, Reason: v1alpha1.ReasonInvalidName, Message: "1 series make no metric"},
				{Path: "spec.customMetrics.rules[2]", State: v1alpha1.RuleWarning, Reason: "NoSeries", Message: "no series match now"},
			}
		}},
		"a node is not selected": {change: func(w *plugincluster.World) {
			w.VirtualNodes = []string{"node-v"}
			w.Nodes = append(w.Nodes, "node-v")
			w.Pods = append(w.Pods, plugincluster.Pod("default/virtual", "node-v", time.Hour))
			w.Backends[0].Spec.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "type", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"virtual"}}},
			}
		}},
		"a selected node is missing": {change: func(w *plugincluster.World) {
			w.VirtualNodes = []string{"node-v"}
			w.Nodes = append(w.Nodes, "node-v")
			w.Backends[0].Spec.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"type": "virtual"}}
		}},
		"running pods without metrics": {change: func(w *plugincluster.World) {
			waits := plugincluster.Pod("default/crashes", "node-b", time.Hour)
			waits.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			w.Pods = append(w.Pods, plugincluster.Pod("shop/web-0", "node-b", time.Hour), plugincluster.Pod("shop/web-1", "node-b", 4*time.Minute),
				plugincluster.Pod("shop/young", "node-b", time.Minute), waits)
		}},
		"no right to list pods":         {change: func(w *plugincluster.World) { w.Codes["/api/v1/pods"] = http.StatusForbidden }},
		"versions disagree":             {change: func(w *plugincluster.World) { w.Served["v1beta1"].CPU = "300m" }},
		"versions know different nodes": {change: func(w *plugincluster.World) { delete(w.Served["v1"].Nodes, "node-a") }},
		"hpa inactive": {change: func(w *plugincluster.World) {
			w.Autoscalers = append(w.Autoscalers,
				*plugincluster.Autoscaler("shop", corev1.ConditionFalse, "FailedGetResourceMetric", "failed to get cpu utilization: unable to fetch metrics from resource metrics API"),
				*plugincluster.Autoscaler("idle", corev1.ConditionFalse, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero"),
				*plugincluster.Autoscaler("bare", corev1.ConditionFalse, "FailedGetResourceMetric", "failed to get cpu utilization: missing request for cpu in container main of Pod bare-0"),
				*plugincluster.Autoscaler("fresh", corev1.ConditionTrue, "", ""),
			)
			w.Autoscalers[4].Status.Conditions = nil
		}},
		"hpa inactive, left out": {
			change: func(w *plugincluster.World) {
				w.Autoscalers = append(w.Autoscalers, *plugincluster.Autoscaler("shop", corev1.ConditionFalse, "FailedGetResourceMetric", "no metrics"))
			},
			options: func(o *options) { o.skip = []string{"hpa-active=hpa/default/shop"} },
		},
		"hpa left out by mistake": {
			change:  func(*plugincluster.World) {},
			options: func(o *options) { o.skip = []string{"hpa-active=hpa/default/typo"} },
		},
		"hpa by another metric": {change: func(w *plugincluster.World) {
			w.Autoscalers[0] = *plugincluster.Autoscaler("queue", corev1.ConditionFalse, "FailedGetExternalMetric", "no such metric")
			w.Autoscalers[0].Spec.Metrics[0].Type = autoscalingv2.ExternalMetricSourceType
		}},
		// One of its metrics is of metrics.k8s.io, and another one fails.
		"hpa by several metrics": {change: func(w *plugincluster.World) {
			w.Autoscalers[0] = *plugincluster.Autoscaler("queue", corev1.ConditionFalse, "FailedGetExternalMetric", "no such metric")
			w.Autoscalers[0].Spec.Metrics = append(w.Autoscalers[0].Spec.Metrics, autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType})
		}},
		"half served": {change: func(w *plugincluster.World) { w.Served["v1"].Resources = []string{"nodes"} }},
		// An image rollback whose APIService is still there.
		"served no more": {change: func(w *plugincluster.World) { delete(w.Served, "v1") }},
		"served no more, of nobody's": {change: func(w *plugincluster.World) {
			delete(w.Served, "v1")
			w.Backends, w.APIServices[0].Labels = nil, nil
		}},
		"certificate expiring": {change: func(w *plugincluster.World) {
			w.Condition(v1alpha1.ConditionCertificatesValid, metav1.ConditionFalse, v1alpha1.ReasonCertificateExpiring, "the certificate ends on 2026-12-01")
		}},
		"v1beta1 preferred":      {change: func(w *plugincluster.World) { w.Group = []string{"v1beta1", "v1"} }},
		"kept by kube-apiserver": {change: func(w *plugincluster.World) { w.APIServices[0].Spec.Service = nil }},
		"being deleted": {
			change: func(w *plugincluster.World) {
				w.APIServices[0].DeletionTimestamp = ptr.To(metav1.NewTime(w.Now))
				w.Backends[0].DeletionTimestamp = ptr.To(metav1.NewTime(w.Now))
			},
			options: func(o *options) { o.expect = []string{"v1", "v1beta1"} },
		},
		"being deleted, the only one": {change: func(w *plugincluster.World) {
			w.Backends[0].DeletionTimestamp = ptr.To(metav1.NewTime(w.Now))
		}},
		"authority ends soon": {change: func(w *plugincluster.World) {
			w.APIServices[0].Spec.CABundle = plugincluster.Authority(t, w.Now.Add(5*24*time.Hour))
		}},
		"authority ended": {change: func(w *plugincluster.World) {
			w.APIServices[0].Spec.CABundle = plugincluster.Authority(t, w.Now.Add(-5*24*time.Hour))
		}},
		"caBundle blanked": {change: func(w *plugincluster.World) {
			w.APIServices[0].Spec.CABundle = nil
			w.APIServices[1].Spec.CABundle = []byte("no PEM")
		}},
		"insecure against the spec": {change: func(w *plugincluster.World) { w.APIServices[0].Spec.InsecureSkipTLSVerify = true }},
		"insecure by choice": {change: func(w *plugincluster.World) {
			w.Backends[0].Spec.Existing = &v1alpha1.ExistingSpec{InsecureSkipTLSVerify: true}
			w.APIServices[0].Spec.InsecureSkipTLSVerify = true
			w.Condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionUnknown, v1alpha1.ReasonNotApplicable, "spec.existing is set")
		}},
		"spec not seen":                    {change: func(w *plugincluster.World) { w.Backends[0].Generation++ }},
		"no operator":                      {change: func(w *plugincluster.World) { w.Backends[0].Status = v1alpha1.MetricsBackendStatus{} }},
		"metrics-server":                   {change: func(w *plugincluster.World) { *w = *plugincluster.MetricsServer() }},
		"metrics-server kept by a backend": {change: func(w *plugincluster.World) { *w = *plugincluster.KeptMetricsServer() }},
		// The operator has not registered what is there yet: v1 may be among it.
		"metrics-server to be kept by a backend": {change: func(w *plugincluster.World) {
			*w = *plugincluster.KeptMetricsServer()
			w.Reconciling(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady, "not registered yet: v1.metrics.k8s.io (waits)")
		}},
		"no right to read backends": {
			change: func(w *plugincluster.World) {
				w.Codes["/apis/metricsbackend.io/v1alpha1/metricsbackends"] = 403
			},
			options: func(o *options) { o.expect = []string{"v1", "v1beta1"} },
		},
		"no right to list APIServices": {change: func(w *plugincluster.World) {
			w.Codes["/apis/apiregistration.k8s.io/v1/apiservices"] = http.StatusForbidden
		}},
		"no right to anything else": {change: func(w *plugincluster.World) {
			for _, path := range []string{"/apis/metrics.k8s.io/v1/nodes", "/apis/metrics.k8s.io/v1beta1/pods", "/api/v1/nodes", "/apis", "/apis/autoscaling/v2/horizontalpodautoscalers", "/metrics"} {
				w.Codes[path] = http.StatusForbidden
			}
		}},
		"kube-apiserver is broken": {change: func(w *plugincluster.World) {
			w.Codes["/apis"], w.Codes["/apis/metrics.k8s.io"], w.Codes["/metrics"] = 500, 500, 500
		}},
		"no answer": {
			change:  func(w *plugincluster.World) { w.Hanging = []string{"/apis/metrics.k8s.io/v1/pods"} },
			timeout: time.Second,
		},
		"other APIs fail": {change: func(w *plugincluster.World) {
			w.ServeOthers()
			plugincluster.SetAvailable(&w.APIServices[2], false, "MissingEndpoints", "endpoints for service/metrics-serving-cluster have no addresses")
			w.Codes["/apis/custom.metrics.k8s.io/v1beta2"] = http.StatusServiceUnavailable
			w.Unlisted = []string{"external.metrics.k8s.io/v1beta1"}
		}},
		"names that differ in case alone": {change: func(w *plugincluster.World) {
			w.ServeOthers()
			for version, names := range map[string][]string{"custom.metrics.k8s.io/v1beta1": {"pods/Hits", "pods/hits"}, "external.metrics.k8s.io/v1beta1": {"LAG", "Lag", "QueueDepth", "Other", "queuedepth"}} {
				w.Others[version] = names
			}
		}},
		"other metrics are not listed": {change: func(w *plugincluster.World) {
			w.ServeOthers()
			w.Others["external.metrics.k8s.io/v1beta1"] = []string{"externalmetrics", "lag", "LAG"}
		}},
		"other APIs are not registered": {change: func(w *plugincluster.World) {
			w.ServeOthers()
			w.APIServices = w.APIServices[:4]
			w.APIServices[3].DeletionTimestamp = ptr.To(metav1.NewTime(w.Now))
		}},
		// prometheus-adapter's, say: a backend neither wants nor keeps it.
		"other APIs of nobody's": {change: func(w *plugincluster.World) {
			service := plugincluster.APIServiceOf("custom.metrics.k8s.io", "v1beta1", "", nil)
			plugincluster.SetAvailable(service, false, "MissingEndpoints", "endpoints for service/prometheus-adapter have no addresses")
			w.APIServices = append(w.APIServices, *service)
		}},
		"other APIs of a spec that is gone": {change: func(w *plugincluster.World) {
			w.ServeOthers()
			w.Backends[0].Spec.CustomMetrics, w.Backends[0].Spec.ExternalMetrics = nil, nil
			w.APIServices = w.APIServices[:3]
			w.APIServices[2].Spec.Service = nil
		}},
		// Nobody serves it, and nobody said that somebody should.
		"no backend for metrics.k8s.io": {change: func(w *plugincluster.World) {
			withoutResourceMetrics(w)
			w.APIServices = w.APIServices[2:]
			w.Current, w.Group, w.Served, w.Autoscalers = nil, nil, nil, nil
		}},
		"metrics-server beside a backend": {change: func(w *plugincluster.World) {
			beside := plugincluster.MetricsServer()
			withoutResourceMetrics(w)
			w.APIServices = append(beside.APIServices, w.APIServices[2:]...)
			w.Current, w.Group, w.Served, w.Metrics = beside.Current, beside.Group, beside.Served, beside.Metrics
		}},
		// The operator has not retired them.
		"versions of a spec without metrics.k8s.io": {change: func(w *plugincluster.World) { withoutResourceMetrics(w) }},
		"series not there yet": {change: func(w *plugincluster.World) {
			w.Metrics = strings.ReplaceAll(w.Metrics, `aggregator_unavailable_apiservice{name="v1.metrics.k8s.io"} 0`+"\n", "")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.Add(10*years)))
			tc.change(world)
			c := plugincluster.Start(t, world)
			if tc.timeout > 0 {
				c.Connection.Timeout = tc.timeout
			}
			got, code := verifyText(t, c, tc.options)
			plugincluster.Golden(t, "lines/"+strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(name)+".txt", fmt.Sprintf("%sexit code %d\n", notPassed(got), code))
		})
	}
}

// withoutResourceMetrics leaves the backend with custom and external metrics.
func withoutResourceMetrics(w *plugincluster.World) {
	w.ServeOthers()
	w.Backends[0].Spec.ResourceMetrics = nil
}

// closePort makes kube-apiserver report each APIService as it does if a firewall drops its
// packets to the pods.
func closePort(w *plugincluster.World) {
	for i := range w.APIServices {
		plugincluster.SetAvailable(&w.APIServices[i], false, "FailedDiscoveryCheck",
			"failing or missing response from https://10.96.0.7:443/apis/metrics.k8s.io: context deadline exceeded")
	}
}

// notPassed leaves out lines that all cases have in common.
func notPassed(text string) string {
	var kept []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(line, "PASS") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}
