// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package plugincluster

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The sets of conditions here are those that the operator writes, see summarize in
// controllers/metricsbackend: Ready and Reconciling for what is in progress, Ready and Stalled for
// what needs a change by a person.

// Reconciling sets the condition of an area to False. Ready is False for a failure, Unknown for
// what is in progress.
func (w *World) Reconciling(area string, ready metav1.ConditionStatus, reason, message string) {
	w.Condition(area, metav1.ConditionFalse, reason, message)
	w.Condition(v1alpha1.ConditionReady, ready, reason, area+": "+message)
	w.Condition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, reason, area+": "+message)
}

// Stalled sets the condition Stalled, for what only a change of the spec or the cluster ends.
func (w *World) Stalled(reason, message string) {
	w.Condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	w.Condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
}

// KeptMetricsServer returns a cluster whose backend keeps the APIService of metrics-server,
// which serves v1beta1 only, so that v1 stays unregistered.
func KeptMetricsServer() *World {
	w := Healthy(nil)
	w.Unregister("v1")
	delete(w.Served, "v1")
	service := &w.APIServices[0]
	service.Spec.Service.Namespace, service.Spec.Service.Name = "kube-system", "metrics-server"
	service.Spec.InsecureSkipTLSVerify = true
	b := &w.Backends[0]
	b.Spec.Existing = &v1alpha1.ExistingSpec{
		Service: v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server"}, InsecureSkipTLSVerify: true,
	}
	const lacking = "Service kube-system/metrics-server does not serve it at endpoint 10.0.0.7:10250"
	b.Status.RegisteredVersions, b.Status.Serving, b.Status.Consumers = "v1beta1", nil, nil
	i := slices.IndexFunc(b.Status.APIServices, func(s v1alpha1.APIServiceStatus) bool { return s.Name == "v1.metrics.k8s.io" })
	b.Status.APIServices[i].State, b.Status.APIServices[i].Message = v1alpha1.APIServicePending, lacking
	w.Condition(v1alpha1.ConditionCertificatesValid, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"the certificate of Service kube-system/metrics-server is not verified, as spec.existing.insecureSkipTLSVerify says")
	w.Condition(v1alpha1.ConditionServingReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"each ready endpoint of Service kube-system/metrics-server was asked; all serve v1beta1")
	w.Condition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"v1beta1.metrics.k8s.io registered for Service kube-system/metrics-server; left out: v1.metrics.k8s.io ("+lacking+")")
	w.Condition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "v1beta1 answer with fresh samples through kube-apiserver")
	w.Condition(v1alpha1.ConditionSourcesHealthy, metav1.ConditionUnknown, v1alpha1.ReasonNotApplicable,
		"only the operator's own serving component tells how it sees the kubelets, and spec.existing is set")
	w.Condition(v1alpha1.ConditionConsumersCompatible, metav1.ConditionUnknown, v1alpha1.ReasonConsumersUnknown,
		"the implementation of spec.existing does not tell who uses which version: a version is removed without waiting for its clients")
	return w
}

// ServeOthers makes the first backend serve custom.metrics.k8s.io and external.metrics.k8s.io, too.
func (w *World) ServeOthers() {
	b, ca := &w.Backends[0], w.APIServices[0].Spec.CABundle
	b.Spec.CustomMetrics, b.Spec.ExternalMetrics = &v1alpha1.CustomMetricsSpec{}, &v1alpha1.ExternalMetricsSpec{}
	w.Others = map[string][]string{
		"custom.metrics.k8s.io/v1beta1": {"pods/hits", "pods/latency"}, "custom.metrics.k8s.io/v1beta2": {"pods/hits", "pods/latency"},
		"external.metrics.k8s.io/v1beta1": {"queue_depth"},
	}
	for _, other := range slices.Sorted(maps.Keys(w.Others)) {
		group, version, _ := strings.Cut(other, "/")
		w.APIServices = append(w.APIServices, *APIServiceOf(group, version, b.Name, ca))
	}
}
