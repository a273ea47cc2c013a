// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// unused are rights that no request of this test shows, each with why it is
// granted. Everything else in config/rbac must be used.
var unused = map[string]string{
	"* bind rbac.authorization.k8s.io/clusterroles":    "checked when a binding is made, never a request of its own",
	"kube-system bind rbac.authorization.k8s.io/roles": "checked when a binding is made, never a request of its own",
	"* get /nodes":                 "held to be granted to serving",
	"* list /nodes":                "held to be granted to serving",
	"* watch /nodes":               "held to be granted to serving",
	"* get /pods":                  "held to be granted to serving",
	"* get /nodes/metrics":         "held to be granted to serving",
	"* get metrics.k8s.io/nodes":   "held to be granted to readers",
	"* watch metrics.k8s.io/nodes": "held to be granted to readers",
	"* get metrics.k8s.io/pods":    "held to be granted to readers",
	"* list metrics.k8s.io/pods":   "held to be granted to readers",
	"* watch metrics.k8s.io/pods":  "held to be granted to readers",
	"metrics-backend-system get discovery.k8s.io/endpointslices":   "held to be granted to serving",
	"metrics-backend-system list discovery.k8s.io/endpointslices":  "held to be granted to serving",
	"metrics-backend-system watch discovery.k8s.io/endpointslices": "held to be granted to serving",
	"metrics-backend-system list /configmaps":                      "held to be granted to serving",
	"metrics-backend-system watch /configmaps":                     "held to be granted to serving",
	"* get metricsbackend.io/custommetrics":                        "held to be granted to serving",
	"* list metricsbackend.io/custommetrics":                       "held to be granted to serving",
	"* watch metricsbackend.io/custommetrics":                      "held to be granted to serving",
	"* get metricsbackend.io/externalmetrics":                      "held to be granted to serving",
	"* list metricsbackend.io/externalmetrics":                     "held to be granted to serving",
	"* watch metricsbackend.io/externalmetrics":                    "held to be granted to serving",
	"* get metricsbackend.io/externalmetricspolicies":              "held to be granted to serving",
	"* list metricsbackend.io/externalmetricspolicies":             "held to be granted to serving",
	"* watch metricsbackend.io/externalmetricspolicies":            "held to be granted to serving",
	"* patch metricsbackend.io/custommetrics/status":               "a metric that serving tells of",
	"* patch metricsbackend.io/externalmetrics/status":             "a metric that serving tells of",
	"* patch metricsbackend.io/externalmetricspolicies/status":     "a policy",
	"* list metricsbackend.io/metricsbackends":                     "informers list if a watch cannot start with all objects; the cleanup of a namespace lists, too",
	"* list /namespaces":                                           "informers list where a watch cannot begin with all objects",
	"* list /pods":                                                 "informers list where a watch cannot begin with all objects",
	"metrics-backend-system list apps/replicasets":                 "informers list where a watch cannot begin with all objects",
	// Used in a namespace without config/default's ResourceQuota.
	"metrics-backend-system get /resourcequotas":    "TestPriorityClassLimited",
	"metrics-backend-system create /resourcequotas": "TestPriorityClassLimited",
	"metrics-backend-system patch /resourcequotas":  "TestPriorityClassLimited",
	"metrics-backend-system delete /resourcequotas": "TestPriorityClassLimited",
	// Used where there is another implementation.
	"* get /services":                             "TestExistingAndServing",
	"* list discovery.k8s.io/endpointslices":      "TestExistingAndServing",
	"* update apiregistration.k8s.io/apiservices": "TestExistingAndServing",
	// Used before an APIService of another implementation is taken over.
	"* get canary.metricsbackend.io/canaries":    "TestAdoptionOfUnreachablePods",
	"metrics-backend-system get /services/proxy": "TestAdoptionOfUnreachablePods",
	// Used before custom or external metrics of another implementation are taken over; their resources are the names of metrics.
	"* list autoscaling/horizontalpodautoscalers": "package comparison",
	"* get custom.metrics.k8s.io/*":               "package comparison",
	"* list custom.metrics.k8s.io/*":              "granted to the prober",
	"* get external.metrics.k8s.io/*":             "granted to the prober",
	"* list external.metrics.k8s.io/*":            "package comparison",
	// Used where cert-manager is asked for the certificate.
	"metrics-backend-system get cert-manager.io/certificates":    "TestCertManager",
	"metrics-backend-system create cert-manager.io/certificates": "TestCertManager",
	"metrics-backend-system patch cert-manager.io/certificates":  "TestCertManager",
	"metrics-backend-system delete cert-manager.io/certificates": "TestCertManager",
	// Used beside another operator only.
	"* get coordination.k8s.io/leases": "TestTwoOperators",
	// Used by the binary only, see TestBinary.
	"* create authentication.k8s.io/tokenreviews":              "TestBinary",
	"* create authorization.k8s.io/subjectaccessreviews":       "TestBinary",
	"metrics-backend-system create coordination.k8s.io/leases": "TestBinary",
	"metrics-backend-system get coordination.k8s.io/leases":    "TestBinary",
	"metrics-backend-system update coordination.k8s.io/leases": "TestBinary",
	"metrics-backend-system create /events":                    "TestBinary",
	"metrics-backend-system create events.k8s.io/events":       "TestBinary",
	"metrics-backend-system patch /events":                     "an event that is repeated",
	"metrics-backend-system patch events.k8s.io/events":        "an event that is repeated",
	"default patch events.k8s.io/events":                       "an event that is repeated",
}

// The operator needs all of its rights and no more: a life of a MetricsBackend
// uses each, with one of external metrics before it. That it is refused nothing is
// seen to after each test, see take.
func TestRights(t *testing.T) {
	suite := take(t)
	police(t, suite)
	deleteBackend(t, suite, "police")
	createBackend(t, suite, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.NetworkPolicy = v1alpha1.NetworkPolicyRestricted
	}))
	waitReady(t, suite, "cluster")
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.NetworkPolicy, spec.Serving.Replicas = v1alpha1.NetworkPolicyNone, ptr.To[int32](1)
	})
	waitReady(t, suite, "cluster")
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1 })
	waitCondition(t, suite, "cluster", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed)
	deleteBackend(t, suite, "cluster")

	used := map[string]bool{}
	for _, e := range auditEvents(t, suite) {
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		right := " " + e.Verb + " " + e.ObjectRef.APIGroup + "/" + resource
		used["*"+right] = true
		used[e.ObjectRef.Namespace+right] = true
		// A patch that makes the object needs the right to create as well.
		if e.Verb == "patch" && e.ResponseStatus.Code == 201 {
			created := " create " + e.ObjectRef.APIGroup + "/" + resource
			used["*"+created], used[e.ObjectRef.Namespace+created] = true, true
		}
	}
	granted := grantedRights(t, suite)
	for _, right := range granted {
		if _, excused := unused[right]; !used[right] && !excused {
			t.Errorf("granted and not used: %s", right)
		}
	}
	for right := range unused {
		if !slices.Contains(granted, right) {
			t.Errorf("excused and not granted: %s", right)
		}
	}
}

// grantedRights are those of the operator's ServiceAccount, "NAMESPACE VERB
// GROUP/RESOURCE", with the namespace "*" for all. Wildcards are refused.
func grantedRights(t *testing.T, suite *controlPlane) []string {
	t.Helper()
	var rights []string
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						right := fmt.Sprintf("%s %s %s/%s", namespace, verb, group, resource)
						if _, excused := unused[right]; !excused && strings.Contains(strings.TrimPrefix(right, "* "), "*") {
							t.Errorf("a wildcard: %s", right)
						}
						rights = append(rights, right)
					}
				}
			}
		}
	}
	var clusterBindings rbacv1.ClusterRoleBindingList
	if err := suite.admin.List(t.Context(), &clusterBindings); err != nil {
		t.Fatal(err)
	}
	for _, binding := range clusterBindings.Items {
		if bindsOperator(binding.Subjects) {
			var role rbacv1.ClusterRole
			if err := suite.admin.Get(t.Context(), client.ObjectKey{Name: binding.RoleRef.Name}, &role); err != nil {
				t.Fatal(err)
			}
			add("*", role.Rules)
		}
	}
	var bindings rbacv1.RoleBindingList
	if err := suite.admin.List(t.Context(), &bindings); err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings.Items {
		// otherNamespace has the same Role as the operator's own.
		if bindsOperator(binding.Subjects) && binding.Namespace != otherNamespace {
			var role rbacv1.Role
			if err := suite.admin.Get(t.Context(), client.ObjectKey{Namespace: binding.Namespace, Name: binding.RoleRef.Name}, &role); err != nil {
				t.Fatal(err)
			}
			add(binding.Namespace, role.Rules)
		}
	}
	if len(rights) < 50 {
		t.Fatalf("only %d rights found", len(rights))
	}
	return rights
}

func bindsOperator(subjects []rbacv1.Subject) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == systemNamespace && s.Name == "metrics-backend-operator"
	})
}
