// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package autoscaler

import (
	"context"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// stockController is the user of the cluster's own HPA controller, in kube-controller-manager.
	stockController = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	// stockRole is all that the controller may do. Watching pod metrics is part of it.
	stockRole = "system:controller:horizontal-pod-autoscaler"
)

// create makes the namespace and the rights in it.
func (s *clusterScenario) create() {
	s.t.Helper()
	ctx, meta := s.t.Context(), metav1.ObjectMeta{Name: s.name}
	_, err := s.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = s.core.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: stockRole},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.name, Name: "autoscaler"}},
		}, metav1.CreateOptions{})
	}
	admission := s.core.AdmissionregistrationV1()
	if err == nil {
		_, err = admission.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policy(s.name)}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = admission.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: s.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// policy keeps the stock controller off: it sees every HPA of a cluster and cannot be told to leave some to others, and
// two controllers would fight over each.
func policy(namespace string) admissionv1.ValidatingAdmissionPolicySpec {
	updates := func(group, resource string) admissionv1.NamedRuleWithOperations {
		return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}}
	}
	return admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{
				updates("apps", "deployments/scale"), updates("autoscaling", "horizontalpodautoscalers/status"),
			},
		},
		Validations: []admissionv1.Validation{{
			Expression: "request.userInfo.username != '" + stockController + "'",
			Message:    "other controllers scale in this namespace",
		}},
	}
}

// waitForPolicy returns when kube-apiserver enforces the policy, which takes it a moment.
func (s *clusterScenario) waitForPolicy() {
	stock, err := kubernetes.NewForConfig(s.as(stockController))
	if err != nil {
		s.t.Fatal(err)
	}
	name := workload("watch", 0)
	s.eventually("the stock controller is kept off", func(ctx context.Context) error {
		_, err := stock.AppsV1().Deployments(s.name).UpdateScale(ctx, name, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name}, Spec: autoscalingv1.ScaleSpec{Replicas: 1},
		}, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "other controllers scale") {
			return fmt.Errorf("its dry run: %w", err)
		}
		return nil
	})
}

// deployment is idle: load comes from a second process.
func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To(int64(1)),
					Containers: []corev1.Container{{
						Name: "burn", Image: "metrics-backend/burn:dev", Args: []string{"--millicores=0"},
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU: *resource.NewMilliQuantity(requestMillicores, resource.DecimalSI),
						}},
					}},
				},
			},
		},
	}
}

// autoscale makes the HPAs, pair by pair, and returns when each was decided on.
func (s *clusterScenario) autoscale(gap time.Duration) {
	hpas := s.core.AutoscalingV2().HorizontalPodAutoscalers(s.name)
	s.workloads(gap, func(names ...string) {
		for _, name := range names {
			way, _, _ := strings.Cut(name, "-")
			if _, err := hpas.Create(s.t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"metrics": way}},
				Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
					ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
					MaxReplicas:    2,
					Metrics: []autoscalingv2.MetricSpec{{
						Type: autoscalingv2.ResourceMetricSourceType,
						Resource: &autoscalingv2.ResourceMetricSource{
							Name: corev1.ResourceCPU,
							Target: autoscalingv2.MetricTarget{
								Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(targetPercent)),
							},
						},
					}},
				},
			}, metav1.CreateOptions{}); err != nil {
				s.t.Fatal(err)
			}
		}
	})
	s.eventually("each HPA is active", func(ctx context.Context) error {
		list, err := hpas.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, hpa := range list.Items {
			if !active(&hpa) || hpa.Status.DesiredReplicas != 1 {
				return fmt.Errorf("%s: %+v", hpa.Name, hpa.Status)
			}
		}
		return nil
	})
}

func active(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	for _, condition := range hpa.Status.Conditions {
		if condition.Type == autoscalingv2.ScalingActive {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// checkNobodyElse sees to it that what was measured was no decision of the cluster's own controller.
func (s *clusterScenario) checkNobodyElse() {
	list, err := s.core.AutoscalingV2().HorizontalPodAutoscalers(s.name).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, hpa := range list.Items {
		for _, write := range hpa.ManagedFields {
			if write.Manager == "kube-controller-manager" {
				s.t.Errorf("%s: kube-controller-manager wrote its %s", hpa.Name, write.Subresource)
			}
		}
	}
}
