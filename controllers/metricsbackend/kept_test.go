// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// access describes what serving pods may do for custom and external metrics.
func (fc *fakeCluster) access() map[string]bool {
	fc.t.Helper()
	var role rbacv1.Role
	var policy networkingv1.NetworkPolicy
	var prober, serving rbacv1.ClusterRole
	key := client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-" + backendName}
	fc.get(key, &role)
	fc.get(key, &policy)
	fc.get(client.ObjectKey{Name: key.Name + "-prober"}, &prober)
	access := map[string]bool{"objects": fc.raw.Get(context.Background(), client.ObjectKey{Name: key.Name + "-objects"}, &rbacv1.ClusterRoleBinding{}) == nil}
	fc.get(client.ObjectKey{Name: key.Name}, &serving)
	for _, rule := range slices.Concat(role.Rules, serving.Rules) {
		for _, name := range rule.ResourceNames {
			access[name] = true
		}
	}
	for _, rule := range prober.Rules {
		access["prober custom"] = access["prober custom"] || slices.Contains(rule.APIGroups, "custom.metrics.k8s.io")
	}
	for _, port := range policy.Spec.Egress[0].Ports {
		access["port "+port.Port.String()] = true
	}
	for name := range access {
		if !slices.Contains([]string{"objects", "token", "token-2", "prober custom", "port 9090", "port 9999", "keda", key.Name + "-metricsapi"}, name) {
			delete(access, name)
		}
	}
	return access
}

// A group that is kept for its clients keeps its permissions, Secrets and ports, and a source that is added meanwhile gets its own.
func TestKeptGroupIsServed(t *testing.T) {
	t.Parallel()
	source := func(name, url, secret string) v1alpha1.SourceSpec {
		token := &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: secret}, Key: "token"}
		return v1alpha1.SourceSpec{Name: name, Prometheus: &v1alpha1.PrometheusSource{URL: url, Authentication: v1alpha1.SourceAuthentication{BearerTokenSecretKeyRef: token}}}
	}
	fc := newFakeCluster(t, newBackend(withAllGroups, func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.NetworkPolicy = v1alpha1.NetworkPolicyRestricted
		spec.Sources = []v1alpha1.SourceSpec{source("main", "https://prometheus.monitoring.svc:9090", "token"), {
			Name: "keda", MetricsAPI: &v1alpha1.MetricsAPISource{Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda"}, Group: v1alpha1.CustomMetricsGroup},
		}}
	}))
	r := fc.reconciler(interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		desired, ok := o.(*networkingv1ac.NetworkPolicyApplyConfiguration)
		if !ok {
			return c.Apply(ctx, o, opts...)
		}
		// The fake client cannot apply ports that are numbers and names.
		policy, live := &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicy{}
		body, err := json.Marshal(desired)
		fc.must(errors.Join(err, json.Unmarshal(body, policy)))
		if fc.raw.Get(ctx, client.ObjectKeyFromObject(policy), live) != nil {
			return fc.raw.Create(ctx, policy)
		}
		live.Spec = policy.Spec
		return fc.raw.Update(ctx, live)
	}})
	fc.reconcileUntil(r, fc.isReady)
	fc.consumers = everyPod(hpaOf("v1beta1.custom.metrics.k8s.io", fc.today()), hpaOf("v1beta2.custom.metrics.k8s.io", fc.today()))
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.CustomMetrics, spec.Sources = nil, []v1alpha1.SourceSpec{source("other", "https://thanos.monitoring.svc:9999", "token-2")}
	})
	fc.reconcileUntil(r, fc.isKept)
	fc.reconcileRounds(r, 5)
	all := map[string]bool{"objects": true, "token": true, "token-2": true, "prober custom": true, "port 9090": true, "port 9999": true, "keda": true, "metrics-serving-cluster-metricsapi": true}
	if diff := cmp.Diff(all, fc.access()); diff != "" {
		t.Errorf("while it is kept (-want +got):\n%s", diff)
	}
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.RemoveDespiteConsumers = []string{"v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io"}
	})
	fc.reconcileUntil(r, fc.isReady)
	if diff := cmp.Diff(map[string]bool{"objects": false, "token-2": true, "prober custom": false, "port 9999": true}, fc.access()); diff != "" {
		t.Errorf("after its removal (-want +got):\n%s", diff)
	}
	if left := strings.Join(fc.registeredVersions(), " "); strings.Contains(left, "custom") {
		t.Errorf("registered: %s", left)
	}
}
