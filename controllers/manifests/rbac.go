// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// ServiceAccount returns the account of the serving pods. Their own spec mounts its token,
// so that no other pod gets it by naming the account alone.
func ServiceAccount(s Serving) *corev1ac.ServiceAccountApplyConfiguration {
	return serviceAccount(s, s.Name()).WithAnnotations(s.Spec.ServiceAccountAnnotations)
}

// ProberServiceAccount returns the account whose token the operator sends to serving pods,
// so that a compromised pod gets nothing but the rights of ProberClusterRole.
func ProberServiceAccount(s Serving) *corev1ac.ServiceAccountApplyConfiguration {
	return serviceAccount(s, s.ProberName())
}

// TokenServiceAccounts returns the accounts whose tokens serving pods request (Role), so that who
// gets one has none of the permissions of serving: kubelets one with ScrapeClusterRole, other
// implementations of a metrics API one with MetricsAPIClusterRole, sources that want a token one with
// what an administrator grants.
func TokenServiceAccounts(s Serving) (accounts []Object) {
	for _, name := range s.tokenAccounts() {
		accounts = append(accounts, serviceAccount(s, name))
	}
	return accounts
}

// GuestServiceAccount returns the account whose token the operator sends to implementations
// that it does not run. It has no rights but those of every account, and its tokens are
// valid for ten minutes.
func GuestServiceAccount(s Serving) *corev1ac.ServiceAccountApplyConfiguration {
	return serviceAccount(s, s.GuestName())
}

func serviceAccount(s Serving, name string) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(name, s.Namespace).
		WithLabels(s.Labels()).
		WithAutomountServiceAccountToken(false)
}

// readVerbs are the verbs of an informer.
var readVerbs = []string{"get", "list", "watch"}

// ClusterRoles returns those of the accounts of serving, and of readers.
func ClusterRoles(s Serving) []Object {
	roles := []Object{ClusterRole(s), ScrapeClusterRole(s), ProberClusterRole(s), ReaderClusterRole(s)}
	if s.sendsTokensOf(v1alpha1.MetricsAPIAccountSuffix) {
		roles = append(roles, MetricsAPIClusterRole(s))
	}
	return roles
}

// ClusterRole returns the cluster-wide rights of serving pods. The operator can only grant
// rights that it has itself (config/rbac).
func ClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	role := clusterRole(s, s.Name(),
		// The kubelets to scrape, and the labels of nodes and pods.
		rule([]string{""}, []string{"nodes", "pods"}, readVerbs),
		// The configuration, which is reloaded without a restart.
		rule([]string{v1alpha1.GroupName}, []string{"metricsbackends"}, readVerbs).WithResourceNames(s.Backend),
		// Declared metrics, and the access rules of external ones.
		rule([]string{v1alpha1.GroupName}, []string{"custommetrics", "externalmetrics", "externalmetricspolicies"}, readVerbs),
		// The first readiness check waits until the pod serves all registered versions.
		rule([]string{"apiregistration.k8s.io"}, []string{"apiservices"}, []string{"list"}),
	)
	// Where other implementations listen, as the aggregator finds it out.
	services := sets.New(namesBefore(s.ClusterRoleBefore.Rules, "services", "get")...)
	for i := range s.Sources {
		if m := s.Sources[i].MetricsAPI; m != nil {
			services.Insert(m.Service.Name)
		}
	}
	if len(services) > 0 {
		role.WithRules(rule([]string{""}, []string{"services"}, []string{"get"}).WithResourceNames(sets.List(services)...))
	}
	return role
}

// ScrapeClusterRole returns the rights of scrapes. A kubelet authorizes /metrics/resource as
// this subresource.
func ScrapeClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	return clusterRole(s, s.ScrapeName(), rule([]string{""}, []string{"nodes/metrics"}, []string{"get"}))
}

// MetricsAPIClusterRole returns the rights of requests to other implementations of a metrics API, which
// authorize them as kube-apiserver does.
func MetricsAPIClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	return clusterRole(s, s.MetricsAPIName(), rule([]string{CustomMetricsGroup, ExternalMetricsGroup}, []string{"*"}, []string{"get", "list"}))
}

// ProberClusterRole returns the rights of the operator's probes of serving pods, which see their token.
func ProberClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	role := clusterRole(s, s.ProberName(),
		rbacv1ac.PolicyRule().
			WithNonResourceURLs("/apis", "/apis/*", v1alpha1.SourcesPath, v1alpha1.ConsumersPath, v1alpha1.DeclaredPath).
			WithVerbs("get"),
		// Each version is probed with a request: discovery also lists broken versions. The rest is
		// compared with another implementation before that is replaced.
		rule([]string{ResourceMetricsGroup}, []string{"nodes", "pods"}, []string{"list"}),
	)
	if s.CustomMetrics {
		role.WithRules(rule([]string{CustomMetricsGroup}, []string{"*"}, []string{"get", "list"}))
	}
	if s.ExternalMetrics {
		role.WithRules(rule([]string{ExternalMetricsGroup}, []string{"*"}, []string{"get", "list"}))
	}
	return role
}

func clusterRole(s Serving, name string, rules ...*rbacv1ac.PolicyRuleApplyConfiguration) *rbacv1ac.ClusterRoleApplyConfiguration {
	return rbacv1ac.ClusterRole(name).WithLabels(s.SharedLabels()).WithRules(rules...)
}

func rule(groups, resources, verbs []string) *rbacv1ac.PolicyRuleApplyConfiguration {
	return rbacv1ac.PolicyRule().WithAPIGroups(groups...).WithResources(resources...).WithVerbs(verbs...)
}

// ReaderClusterRole returns the right to read resource metrics, aggregated into view, edit
// and admin.
func ReaderClusterRole(s Serving) *rbacv1ac.ClusterRoleApplyConfiguration {
	return clusterRole(s, s.Name()+"-reader", rule([]string{ResourceMetricsGroup}, []string{"pods", "nodes"}, readVerbs)).
		WithLabels(map[string]string{
			"rbac.authorization.k8s.io/aggregate-to-view":  "true",
			"rbac.authorization.k8s.io/aggregate-to-edit":  "true",
			"rbac.authorization.k8s.io/aggregate-to-admin": "true",
		})
}

// ObjectsRole is the ClusterRole, installed with the operator, for the objects that custom
// metrics describe. Other roles are aggregated into it.
const ObjectsRole = "metrics-backend-serving-objects"

// ClusterRoleBindings returns those of the accounts of serving.
func ClusterRoleBindings(s Serving) (bindings []Object) {
	bind := func(name, role, serviceAccount string) {
		bindings = append(bindings, rbacv1ac.ClusterRoleBinding(name).
			WithLabels(s.SharedLabels()).
			WithRoleRef(roleRef("ClusterRole", role)).
			WithSubjects(account(serviceAccount, s.Namespace)))
	}
	bind(s.Name(), s.Name(), s.Name())
	// Serving pods delegate authentication (TokenReview) and authorization (SubjectAccessReview).
	bind(s.Name()+"-auth-delegator", "system:auth-delegator", s.Name())
	bind(s.ProberName(), s.ProberName(), s.ProberName())
	if s.CustomMetrics && !s.ObjectsRoleMissing {
		// For the label selectors of custom metrics.
		bind(s.Name()+"-objects", ObjectsRole, s.Name())
	}
	if s.Scrapes {
		bind(s.ScrapeName(), s.ScrapeName(), s.ScrapeName())
	}
	if s.sendsTokensOf(v1alpha1.MetricsAPIAccountSuffix) {
		bind(s.MetricsAPIName(), s.MetricsAPIName(), s.MetricsAPIName())
	}
	return bindings
}

func roleRef(kind, name string) *rbacv1ac.RoleRefApplyConfiguration {
	return rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}

func account(name, namespace string) *rbacv1ac.SubjectApplyConfiguration {
	return rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithName(name).WithNamespace(namespace)
}

// Role returns the rights of serving pods in their namespace: to list ready peers, which
// the first readiness check asks for the versions that they serve, to request tokens for
// kubelets and sources, and to watch the Secrets and ConfigMaps that sources refer to, each by name.
func Role(s Serving) *rbacv1ac.RoleApplyConfiguration {
	rules := []*rbacv1ac.PolicyRuleApplyConfiguration{
		rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, readVerbs),
		rule([]string{""}, []string{"serviceaccounts/token"}, []string{"create"}).WithResourceNames(s.tokenAccounts()...),
	}
	watch := func(resource string, names []string) {
		verbs := []string{"list", "watch"}
		if all := sets.New(names...).Insert(namesBefore(s.RoleBefore.Rules, resource, verbs...)...); len(all) > 0 {
			rules = append(rules, rule([]string{""}, []string{resource}, verbs).WithResourceNames(sets.List(all)...))
		}
	}
	watch("secrets", v1alpha1.SourceSecrets(s.Sources))
	watch("configmaps", v1alpha1.SourceConfigMaps(s.Sources, s.Spec.CAConfigMapKeyRef))
	return rbacv1ac.Role(s.Name(), s.Namespace).WithLabels(s.Labels()).WithRules(rules...)
}

// namesBefore returns the resource names of the rule for the resource with exactly these verbs, as in Role and ClusterRole.
// What somebody added in another form is not kept.
func namesBefore(rules []rbacv1.PolicyRule, resource string, verbs ...string) (names []string) {
	for _, r := range rules {
		ours := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs, ResourceNames: r.ResourceNames}
		if equality.Semantic.DeepEqual(r, ours) {
			names = append(names, r.ResourceNames...)
		}
	}
	return names
}

// RoleBinding binds serving pods to their Role.
func RoleBinding(s Serving) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
		WithRoleRef(roleRef("Role", s.Name())).
		WithSubjects(account(s.Name(), s.Namespace))
}

// AuthReaderRole is the Role in kube-system that every aggregated API server needs to
// authenticate kube-apiserver's own requests.
const AuthReaderRole = "extension-apiserver-authentication-reader"

// AuthReaderBinding binds serving pods to AuthReaderRole. It is the only object outside the
// serving namespace that is not cluster-scoped.
func AuthReaderBinding(s Serving) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(s.Name()+"-auth-reader", metav1.NamespaceSystem).
		WithLabels(s.SharedLabels()).
		WithRoleRef(roleRef("Role", AuthReaderRole)).
		WithSubjects(account(s.Name(), s.Namespace))
}
