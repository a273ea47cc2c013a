// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// revisionAnnotation is kept by the Deployment controller on a Deployment and
// its ReplicaSets.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// rollout reads how far the Deployment is, and what keeps pods from starting.
func (r *Reconciler) rollout(ctx context.Context, s *scope) error {
	if !s.deploys() {
		s.backend.Status.Serving = nil
		return nil
	}
	s.backend.Status.Serving = &v1alpha1.ServingStatus{
		Image: s.serving.Image, Namespace: s.serving.Namespace, Replicas: *s.spec.Serving.Replicas,
	}
	if s.unmanaged {
		s.podsRead = true
		s.summarizeReplicas(0)
		s.mark(v1alpha1.ConditionServingReady, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"pods of a namespace that the operator does not manage are not read")
		return nil
	}
	var deployment appsv1.Deployment
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}, &deployment)
	switch {
	case apierrors.IsNotFound(err):
		s.podsRead = true
		s.summarizeReplicas(0)
		reason, message := v1alpha1.ReasonProgressing, "the Deployment is being made"
		if s.blocked {
			reason, message = v1alpha1.ReasonDependencyNotReady, "nothing is deployed: see Ready for the reason"
		}
		s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, reason, message)
		return nil
	case err != nil:
		return fmt.Errorf("get Deployment %s: %w", s.serving.Name(), err)
	}
	s.deployment = &deployment
	if containers := deployment.Spec.Template.Spec.Containers; len(containers) > 0 {
		s.backend.Status.Serving.Image = containers[0].Image
	}
	s.summarizeReplicas(deployment.Status.ReadyReplicas)
	if err := r.readPods(ctx, s); err != nil {
		return err
	}
	s.podsRead = true
	s.rolledOut = finished(&deployment, s.applied)
	s.judgeRollout()
	return nil
}

func (s *scope) summarizeReplicas(ready int32) {
	status := s.backend.Status.Serving
	status.ReadyReplicas = ready
	status.Summary = fmt.Sprintf("%d/%d", ready, status.Replicas)
}

// finished tells whether every pod is of the newest revision and available.
// applied is the generation of the last apply, which the cache may not have yet.
func finished(d *appsv1.Deployment, applied int64) bool {
	want := ptr.Deref(d.Spec.Replicas, 1)
	return d.Generation >= applied && d.Status.ObservedGeneration >= d.Generation &&
		d.Status.UpdatedReplicas == want && d.Status.Replicas == want && d.Status.AvailableReplicas == want
}

// judgeRollout sets ServingReady by what the Deployment says; probe goes on.
func (s *scope) judgeRollout() {
	d, want := s.deployment, ptr.Deref(s.deployment.Spec.Replicas, 1)
	if s.rolledOut {
		s.mark(v1alpha1.ConditionServingReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			fmt.Sprintf("%d of %d pods are up to date and ready", want, want))
		return
	}
	if why := s.rolloutFailure(); why != "" {
		s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed, why)
		return
	}
	updated := d.Status.UpdatedReplicas
	if d.Status.ObservedGeneration < d.Generation || d.Generation < s.applied {
		updated = 0
	}
	s.mark(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRollingOut,
		fmt.Sprintf("%d of %d pods are up to date, %d ready", updated, want, d.Status.ReadyReplicas))
}

// rolloutFailure is what keeps the rollout from going on, or empty.
func (s *scope) rolloutFailure() string {
	for _, c := range s.deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return "no pod can be made: " + c.Message
		}
	}
	var troubles []string
	for _, p := range s.pods {
		if why := trouble(p.Pod); why != "" {
			troubles = append(troubles, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, why))
		}
	}
	if len(troubles) > 0 {
		return troubles[0] + others(len(troubles)-1, "pod")
	}
	for _, c := range s.deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("the rollout of Deployment %s/%s does not get on; pods that are not ready: %s "+
				"(kubectl describe pod, kubectl logs)", s.deployment.Namespace, s.deployment.Name, s.notReady())
		}
	}
	return ""
}

func (s *scope) notReady() string {
	var names []string
	for _, p := range s.pods {
		if !p.ready {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// readPods reads the backend's pods, those that are ending apart.
func (r *Reconciler) readPods(ctx context.Context, s *scope) error {
	hash, err := r.currentHash(ctx, s)
	if err != nil {
		return err
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.serving.Namespace), client.MatchingLabels(s.serving.Selector())); err != nil {
		return fmt.Errorf("list serving pods: %w", err)
	}
	s.pods, s.ending = nil, nil
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if p.DeletionTimestamp != nil {
			if p.Status.Phase == corev1.PodRunning {
				s.ending = append(s.ending, pod{Pod: p})
			}
			continue
		}
		s.pods = append(s.pods, pod{
			Pod: p, ready: isReady(p),
			current: hash != "" && p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash,
		})
	}
	for _, pods := range [][]pod{s.pods, s.ending} {
		slices.SortFunc(pods, func(a, b pod) int { return strings.Compare(a.Name, b.Name) })
	}
	return nil
}

// currentHash is the pod-template-hash of the Deployment's newest revision.
func (r *Reconciler) currentHash(ctx context.Context, s *scope) (string, error) {
	if s.deployment.Generation < s.applied || s.deployment.Status.ObservedGeneration < s.deployment.Generation {
		return "", nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"))
	if err := r.Client.List(ctx, list, client.InNamespace(s.serving.Namespace), client.MatchingLabels(s.serving.Selector())); err != nil {
		return "", fmt.Errorf("list ReplicaSets: %w", err)
	}
	for i := range list.Items {
		set := &list.Items[i]
		if metav1.IsControlledBy(set, s.deployment) && set.Annotations[revisionAnnotation] == s.deployment.Annotations[revisionAnnotation] {
			return set.Labels[appsv1.DefaultDeploymentUniqueLabelKey], nil
		}
	}
	return "", nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
