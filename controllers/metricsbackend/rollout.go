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

// revisionAnnotation is set by the Deployment controller on Deployments and ReplicaSets.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// rollout reads the state of the Deployment and its pods.
func (r *Reconciler) rollout(ctx context.Context, s *reconcileState) error {
	if !s.deploys() {
		s.backend.Status.Serving = nil
		return nil
	}
	s.backend.Status.Serving = &v1alpha1.ServingStatus{
		Image: s.serving.Image, Namespace: s.serving.Namespace, Replicas: *s.spec.Serving.Replicas,
	}
	if s.namespaceUnmanaged {
		s.podsRead = true
		s.summarizeReplicas(0)
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"pods of a namespace that the operator does not manage are not read")
		return nil
	}
	var deployment appsv1.Deployment
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}, &deployment)
	switch {
	case apierrors.IsNotFound(err):
		s.podsRead = true
		s.summarizeReplicas(0)
		reason, message := v1alpha1.ReasonProgressing, "the Deployment is being created"
		if s.blocked {
			reason, message = v1alpha1.ReasonDependencyNotReady, "nothing is deployed: see Ready for the reason"
		}
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, reason, message)
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
	s.rolledOut = rolloutFinished(&deployment, s.appliedGeneration)
	s.setServingReadyFromRollout()
	return nil
}

func (s *reconcileState) summarizeReplicas(ready int32) {
	status := s.backend.Status.Serving
	status.ReadyReplicas = ready
	status.Summary = fmt.Sprintf("%d/%d", ready, status.Replicas)
}

// rolloutFinished reports whether every pod is available and of the newest revision.
// applied is the generation of the last apply, which may not be in the cache yet.
func rolloutFinished(d *appsv1.Deployment, applied int64) bool {
	want := ptr.Deref(d.Spec.Replicas, 1)
	return d.Generation >= applied && d.Status.ObservedGeneration >= d.Generation &&
		d.Status.UpdatedReplicas == want && d.Status.Replicas == want && d.Status.AvailableReplicas == want
}

// setServingReadyFromRollout sets ServingReady by the Deployment; probe refines it.
func (s *reconcileState) setServingReadyFromRollout() {
	d, want := s.deployment, ptr.Deref(s.deployment.Spec.Replicas, 1)
	if s.rolledOut {
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
			fmt.Sprintf("%d of %d pods are up to date and ready", want, want))
		return
	}
	if why := s.rolloutFailure(); why != "" {
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed, why)
		return
	}
	updated := d.Status.UpdatedReplicas
	if d.Status.ObservedGeneration < d.Generation || d.Generation < s.appliedGeneration {
		updated = 0
	}
	s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, v1alpha1.ReasonRollingOut,
		fmt.Sprintf("%d of %d pods are up to date, %d ready", updated, want, d.Status.ReadyReplicas))
}

// rolloutFailure returns what keeps the rollout from progressing, or "".
func (s *reconcileState) rolloutFailure() string {
	for _, c := range s.deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return "no pod can be created: " + c.Message
		}
	}
	var failures []string
	for _, p := range s.pods {
		if why := startFailure(p.Pod); why != "" {
			failures = append(failures, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, why))
		}
	}
	if len(failures) > 0 {
		return failures[0] + andMore(len(failures)-1, "pod")
	}
	for _, c := range s.deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("the rollout of Deployment %s/%s makes no progress; pods that are not ready: %s "+
				"(kubectl describe pod, kubectl logs)", s.deployment.Namespace, s.deployment.Name, s.notReadyPods())
		}
	}
	return ""
}

func (s *reconcileState) notReadyPods() string {
	var names []string
	for _, p := range s.pods {
		if !p.ready {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// readPods reads the backend's pods, terminating ones separately.
func (r *Reconciler) readPods(ctx context.Context, s *reconcileState) error {
	hash, err := r.currentTemplateHash(ctx, s)
	if err != nil {
		return err
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.serving.Namespace), client.MatchingLabels(s.serving.Selector())); err != nil {
		return fmt.Errorf("list serving pods: %w", err)
	}
	s.pods, s.terminatingPods = nil, nil
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if p.DeletionTimestamp != nil {
			if p.Status.Phase == corev1.PodRunning {
				s.terminatingPods = append(s.terminatingPods, pod{Pod: p})
			}
			continue
		}
		s.pods = append(s.pods, pod{
			Pod: p, ready: isReady(p),
			current: hash != "" && p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash,
		})
	}
	for _, pods := range []pods{s.pods, s.terminatingPods} {
		slices.SortFunc(pods, func(a, b pod) int { return strings.Compare(a.Name, b.Name) })
	}
	return nil
}

// currentTemplateHash returns the pod-template-hash of the newest revision, or "".
func (r *Reconciler) currentTemplateHash(ctx context.Context, s *reconcileState) (string, error) {
	if s.deployment.Generation < s.appliedGeneration || s.deployment.Status.ObservedGeneration < s.deployment.Generation {
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
