// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// The verbs of an informer.
var readVerbs = []string{"get", "list", "watch"}

// ClusterRole is what serving pods may do in the whole cluster. The operator
// must hold each of these rights itself to grant it (config/rbac).
func ClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	return rbacv1ac.ClusterRole(s.Name()).
		WithLabels(s.Labels()).
		WithRules(
			// Which kubelets to ask, and the labels of what they report.
			rule([]string{""}, []string{"nodes", "pods"}, readVerbs),
			// A kubelet authorises /metrics/resource as this subresource.
			rule([]string{""}, []string{"nodes/metrics"}, []string{"get"}),
			// The settings that are followed without a restart, of this backend alone.
			rule([]string{v1alpha1.GroupName}, []string{"metricsbackends"}, readVerbs).WithResourceNames(s.Backend),
			// Metrics that teams declare, and who may read external ones.
			rule([]string{v1alpha1.GroupName}, []string{"custommetrics", "externalmetrics", "externalmetricspolicies"}, readVerbs),
			// The first readiness waits until the pod serves what is registered.
			rule([]string{"apiregistration.k8s.io"}, []string{"apiservices"}, []string{"list"}),
		)
}

// ProberClusterRole is what the operator's probes of serving pods may do.
func ProberClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	return rbacv1ac.ClusterRole(s.ProberName()).
		WithLabels(s.Labels()).
		WithRules(
			rbacv1ac.PolicyRule().
				WithNonResourceURLs("/apis", "/apis/*", v1alpha1.SourcesPath, v1alpha1.ConsumersPath, v1alpha1.DeclaredPath).
				WithVerbs("get"),
			// A request of each version: discovery lists it whether it works or not.
			rule([]string{"metrics.k8s.io"}, []string{"nodes"}, []string{"list"}),
		)
}

func rule(groups, resources, verbs []string) *rbacv1ac.PolicyRuleApplyConfiguration {
	return rbacv1ac.PolicyRule().WithAPIGroups(groups...).WithResources(resources...).WithVerbs(verbs...)
}
