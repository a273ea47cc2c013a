// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// limitedClass is a priority class that kube-apiserver limits beside the system's.
const limitedClass = "limited"

// limitedPriorityClasses is an admission configuration as on GKE: pods of these classes are refused
// in namespaces without a ResourceQuota for them.
const limitedPriorityClasses = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [system-node-critical, system-cluster-critical, ` + limitedClass + `]
`

func inOtherNamespace(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Namespace = otherNamespace }

// quotaFor is a ResourceQuota of someone else.
func quotaFor(class string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: otherNamespace, Name: "team"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{class},
			}}},
		},
	}
}

// quotas are the names of the ResourceQuotas in a namespace.
func quotas(ctx context.Context, suite *controlPlane, namespace string) (string, error) {
	var list corev1.ResourceQuotaList
	err := suite.admin.List(ctx, &list, client.InNamespace(namespace))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return strings.Join(names, " "), err
}

func checkQuotas(t *testing.T, suite *controlPlane, when, namespace, want string) {
	t.Helper()
	if got, err := quotas(t.Context(), suite, namespace); err != nil || got != want {
		t.Errorf("%s: ResourceQuotas %q of namespace %s (%v), want %q", when, got, namespace, err, want)
	}
}

// Serving's pods are created where kube-apiserver limits their priority class: beside the operator
// with the quota of config/default, elsewhere with one of the backend's.
func TestPriorityClassLimited(t *testing.T) {
	suite := take(t)
	t.Run("beside the operator", func(t *testing.T) {
		createBackend(t, suite, newBackend("cluster"))
		waitReady(t, suite, "cluster")
		checkQuotas(t, suite, "ready", systemNamespace, "metrics-backend-operator")
	})
	t.Run("in a namespace without a quota", func(t *testing.T) {
		createBackend(t, suite, newBackend("cluster", inOtherNamespace))
		waitReady(t, suite, "cluster")
		checkQuotas(t, suite, "ready", otherNamespace, "metrics-serving-cluster")
		deleteBackend(t, suite, "cluster")
		checkQuotas(t, suite, "deleted", otherNamespace, "")
	})
	t.Run("someone else's quota", func(t *testing.T) {
		team := quotaFor("system-cluster-critical")
		create(t, suite, team)
		createBackend(t, suite, newBackend("cluster", inOtherNamespace))
		waitReady(t, suite, "cluster")
		checkQuotas(t, suite, "with another quota", otherNamespace, "team")
		if err := suite.admin.Delete(t.Context(), team); err != nil {
			t.Fatal(err)
		}
		// It is not watched.
		outcome.Eventually(t, 2*patience, "the other quota is replaced", func(ctx context.Context) error {
			if got, err := quotas(ctx, suite, otherNamespace); err != nil || got != "metrics-serving-cluster" {
				return fmt.Errorf("ResourceQuotas %q, %v", got, err)
			}
			return nil
		})
		create(t, suite, quotaFor("system-cluster-critical"))
		changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1 })
		waitCondition(t, suite, "cluster", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonVersionNotServed)
		checkQuotas(t, suite, "both", otherNamespace, "metrics-serving-cluster team")
	})
}

// A class that the cluster limits for other reasons stops the rollout and nothing else, and the condition
// says what is missing.
func TestPriorityClassWithoutQuota(t *testing.T) {
	suite := take(t)
	create(t, suite, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: limitedClass}, Value: 1000})
	createBackend(t, suite, newBackend("cluster", inOtherNamespace))
	waitReady(t, suite, "cluster")
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.PriorityClassName = limitedClass })
	backend := waitCondition(t, suite, "cluster", v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed)
	for _, want := range []string{
		"no pod can be created: insufficient quota to match these scopes: [{PriorityClass In",
		"limits the priority class " + limitedClass, "create one in namespace " + otherNamespace, "spec.serving.priorityClassName",
	} {
		if got := condition(backend, v1alpha1.ConditionServingReady).Message; !strings.Contains(got, want) {
			t.Errorf("message %q, want %q in it", got, want)
		}
	}
	if got := condition(backend, v1alpha1.ConditionAvailable); got.Status != metav1.ConditionTrue {
		t.Errorf("Available: %+v", got)
	}
	// The quota for the former class stays: a pod of it is replaced.
	var pods corev1.PodList
	if err := suite.admin.List(t.Context(), &pods, client.InNamespace(otherNamespace), owned()); err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods, %v", len(pods.Items), err)
	}
	former := pods.Items[0].DeepCopy()
	former.ObjectMeta = metav1.ObjectMeta{Namespace: otherNamespace, Name: "former-revision"}
	if err := suite.admin.Create(t.Context(), former, client.DryRunAll); err != nil {
		t.Errorf("a pod of the former revision: %v", err)
	}
	create(t, suite, quotaFor(limitedClass))
	waitReady(t, suite, "cluster")
}
