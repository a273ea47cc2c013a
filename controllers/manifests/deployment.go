// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

const (
	// progressDeadlineSeconds is when a rollout counts as stuck. The first
	// readiness may wait 90 s for rates.
	progressDeadlineSeconds int32 = 300
	revisionHistoryLimit    int32 = 3
)

// Deployment runs the serving pods.
func Deployment(s Serving) *appsv1ac.DeploymentApplyConfiguration {
	return appsv1ac.Deployment(s.Name(), s.Namespace).
		WithLabels(s.userLabels()).
		WithSpec(appsv1ac.DeploymentSpec().
			WithReplicas(*s.Spec.Replicas).
			WithProgressDeadlineSeconds(progressDeadlineSeconds).
			WithRevisionHistoryLimit(revisionHistoryLimit).
			WithStrategy(appsv1ac.DeploymentStrategy().
				WithType(appsv1.RollingUpdateDeploymentStrategyType).
				WithRollingUpdate(rollingUpdate(s))).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).
			WithTemplate(podTemplate(s)))
}

// rollingUpdate never goes below the wanted number of ready pods, with one
// exception: in the node's network a pod occupies its port, so that a surge pod
// finds no node once every node has one. With two pods or more one of them gives
// way then, and the others serve. A single pod in the node's network keeps its
// place until a node is free: its rollout waits rather than fail requests.
func rollingUpdate(s Serving) *appsv1ac.RollingUpdateDeploymentApplyConfiguration {
	surge, unavailable := int32(1), int32(0)
	if s.Spec.HostNetwork && *s.Spec.Replicas > 1 {
		surge, unavailable = 0, 1
	}
	return appsv1ac.RollingUpdateDeployment().
		WithMaxSurge(intstr.FromInt32(surge)).
		WithMaxUnavailable(intstr.FromInt32(unavailable))
}

// userLabels are spec.serving.labels below the operator's own.
func (s Serving) userLabels() map[string]string {
	labels := maps.Clone(s.Spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, s.Labels())
	return labels
}
