// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// metricVersions are those of custom and external metrics that the pod serves: an
// image that serves all of metrics.k8s.io serves these, too.
func (p *servingPod) metricVersions() []schema.GroupVersion {
	if len(p.versions) < 2 {
		return nil
	}
	return []schema.GroupVersion{
		{Group: "custom.metrics.k8s.io", Version: "v1beta2"}, {Group: "custom.metrics.k8s.io", Version: "v1beta1"},
		{Group: "external.metrics.k8s.io", Version: "v1beta1"},
	}
}

// metricGroups is their aggregated discovery, of no metrics at all.
func (p *servingPod) metricGroups() []apidiscoveryv2.APIGroupDiscovery {
	var groups []apidiscoveryv2.APIGroupDiscovery
	for _, gv := range p.metricVersions() {
		if len(groups) == 0 || groups[len(groups)-1].Name != gv.Group {
			groups = append(groups, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
		}
		group := &groups[len(groups)-1]
		group.Versions = append(group.Versions, apidiscoveryv2.APIVersionDiscovery{
			Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent,
		})
	}
	return groups
}

// noMetrics is discovery of a version in which no metric exists at the moment.
func (p *servingPod) noMetrics(gv schema.GroupVersion) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{},
		})
	}
}

// registrations are our APIServices, each as NAME PRIORITY.
func registrations(t *testing.T, suite *controlPlane) []string {
	t.Helper()
	var list apiregistrationv1.APIServiceList
	if err := suite.admin.List(t.Context(), &list, client.HasLabels{v1alpha1.LabelBackend}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, service := range list.Items {
		names = append(names, fmt.Sprintf("%s %d %d", service.Name, service.Spec.GroupPriorityMinimum, service.Spec.VersionPriority))
	}
	slices.Sort(names)
	return names
}

// The groups come and go with the spec, through the real aggregator, in which a version
// without any metric is current; and serving's rights come and go with them.
func TestGroupsComeAndGo(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("groups"))
	waitReady(t, suite, "groups")
	objects := &rbacv1.ClusterRoleBinding{}
	role := &rbacv1.Role{}
	atObjects := client.ObjectKey{Name: "metrics-serving-groups-objects"}
	atRole := client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-groups"}
	namesOf := func(resource string) []string {
		t.Helper()
		if err := suite.admin.Get(t.Context(), atRole, role); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, resource) {
				names = append(names, rule.ResourceNames...)
			}
		}
		return names
	}
	if names := slices.Concat(namesOf("secrets"), namesOf("configmaps")); len(names) > 0 {
		t.Errorf("without sources serving may read the Secrets and ConfigMaps %v", names)
	}

	pods := getBackend(t, suite, "groups").Status.Serving.Pods
	changeBackend(t, suite, "groups", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.CustomMetrics, spec.ExternalMetrics = &v1alpha1.CustomMetricsSpec{}, &v1alpha1.ExternalMetricsSpec{}
		spec.Sources = []v1alpha1.SourceSpec{{Name: "main", Optional: true, Prometheus: &v1alpha1.PrometheusSource{
			URL:            "https://prometheus.monitoring.svc:9090",
			TLS:            v1alpha1.SourceTLS{CAConfigMapKeyRef: &v1alpha1.ConfigMapKeyReference{Name: "trust-bundle", Key: "ca-bundle.pem"}},
			Authentication: v1alpha1.SourceAuthentication{BasicAuthSecretRef: &v1alpha1.SecretReference{Name: "prometheus-login"}},
		}}}
	})
	waitCondition(t, suite, "groups", v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonSucceeded)
	want := []string{
		"v1.metrics.k8s.io 100 200", "v1beta1.custom.metrics.k8s.io 100 100", "v1beta1.external.metrics.k8s.io 100 100",
		"v1beta1.metrics.k8s.io 100 100", "v1beta2.custom.metrics.k8s.io 100 200",
	}
	if diff := cmp.Diff(want, registrations(t, suite)); diff != "" {
		t.Errorf("registered (-want +got):\n%s", diff)
	}
	backend := getBackend(t, suite, "groups")
	if got, want := backend.Status.RegisteredVersions, "v1, v1beta1, custom/v1beta2, custom/v1beta1, external/v1beta1"; got != want {
		t.Errorf("registeredVersions %q, want %q", got, want)
	}
	for i, pod := range backend.Status.Serving.Pods {
		if pod.Name != pods[i].Name {
			t.Errorf("pod %s took the place of %s: a source rolls pods", pod.Name, pods[i].Name)
		}
	}
	if diff := cmp.Diff([]string{"prometheus-login", "trust-bundle"}, slices.Concat(namesOf("secrets"), namesOf("configmaps"))); diff != "" {
		t.Errorf("Secrets and ConfigMaps (-want +got):\n%s", diff)
	}
	if err := suite.admin.Get(t.Context(), atObjects, objects); err != nil {
		t.Errorf("serving may not list what custom metrics describe: %v", err)
	}

	// An older image serves neither group: they leave discovery before it takes traffic.
	changeBackend(t, suite, "groups", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1 })
	waitCondition(t, suite, "groups", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed)
	if diff := cmp.Diff([]string{"v1beta1.metrics.k8s.io 100 100"}, registrations(t, suite)); diff != "" {
		t.Errorf("registered with an older image (-want +got):\n%s", diff)
	}

	changeBackend(t, suite, "groups", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.Image = ""
		spec.CustomMetrics, spec.ExternalMetrics, spec.Sources = nil, nil, nil
	})
	waitReady(t, suite, "groups")
	if diff := cmp.Diff([]string{"v1.metrics.k8s.io 100 200", "v1beta1.metrics.k8s.io 100 100"}, registrations(t, suite)); diff != "" {
		t.Errorf("registered at the end (-want +got):\n%s", diff)
	}
	if names := slices.Concat(namesOf("secrets"), namesOf("configmaps")); len(names) > 0 {
		t.Errorf("at the end serving may read the Secrets and ConfigMaps %v", names)
	}
	if err := suite.admin.Get(t.Context(), atObjects, objects); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("at the end serving may list objects: %v", err)
	}
}

// What autoscalers need is the stock role's: the operator grants the HPA controller
// nothing. The role view reads custom metrics of its namespace, not external ones.
func TestWhoMayReadMetrics(t *testing.T) {
	suite := take(t)
	role := func(name string) *rbacv1.ClusterRole {
		t.Helper()
		role := &rbacv1.ClusterRole{}
		if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: name}, role); err != nil {
			t.Fatal(err)
		}
		return role
	}
	grants := func(role *rbacv1.ClusterRole, group string) (verbs []string) {
		for _, rule := range role.Rules {
			if slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, "*") {
				verbs = append(verbs, rule.Verbs...)
			}
		}
		return verbs
	}
	hpa := role("system:controller:horizontal-pod-autoscaler")
	for _, group := range []string{"custom.metrics.k8s.io", "external.metrics.k8s.io"} {
		if verbs := grants(hpa, group); !slices.Contains(verbs, "get") || !slices.Contains(verbs, "list") {
			t.Errorf("the HPA controller may %v in %s, want get and list", verbs, group)
		}
	}
	for name, group := range map[string]string{
		"metrics-backend-custom-metrics-reader": "custom.metrics.k8s.io", "metrics-backend-external-metrics-reader": "external.metrics.k8s.io",
	} {
		reader := role(name)
		if diff := cmp.Diff([]string{"get", "list", "watch"}, grants(reader, group)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		aggregated := reader.Labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
		if aggregated != strings.Contains(name, "custom") {
			t.Errorf("%s is part of view = %t", name, aggregated)
		}
	}
	want := &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"metricsbackend.io/aggregate-to-serving": "true"}}}}
	if diff := cmp.Diff(want, role("metrics-backend-serving-objects").AggregationRule); diff != "" {
		t.Errorf("what is aggregated to serving (-want +got):\n%s", diff)
	}
}
