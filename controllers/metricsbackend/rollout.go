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
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
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
	if s.namespace.unmanaged {
		s.rollout.podsRead = true
		s.summarizeReplicas(0)
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionUnknown, v1alpha1.ReasonDependencyNotReady,
			"pods of a namespace that the operator does not manage are not read")
		return nil
	}
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: s.serving.Namespace, Name: s.serving.Name()}
	err := r.Client.Get(ctx, key, &deployment)
	if apierrors.IsNotFound(err) {
		// Without pods, nobody uses a version that is to be removed: a cache that is behind does not say that.
		err = r.APIReader.Get(ctx, key, &deployment)
	}
	switch {
	case apierrors.IsNotFound(err):
		s.rollout.podsRead = true
		s.summarizeReplicas(0)
		reason, message := v1alpha1.ReasonProgressing, "the Deployment is being created"
		if s.outcome.blocked {
			reason, message = v1alpha1.ReasonDependencyNotReady, "nothing is deployed: see Ready for the reason"
		}
		s.setCondition(v1alpha1.ConditionServingReady, metav1.ConditionFalse, reason, message)
		return nil
	case err != nil:
		return fmt.Errorf("get Deployment %s: %w", s.serving.Name(), err)
	}
	s.backend.Status.Serving.Image = imageOf(&deployment.Spec.Template.Spec)
	s.summarizeReplicas(deployment.Status.ReadyReplicas)
	if err := r.readPods(ctx, s, &deployment); err != nil {
		return err
	}
	s.rollout.podsRead = true
	result := rolloutResult(&deployment, s.rollout.appliedGeneration, s.rollout.pods)
	s.rollout.finished = result.status == metav1.ConditionTrue
	s.rollout.failing = result.reason == v1alpha1.ReasonRolloutFailed
	result.message += s.rollout.changed
	s.setResult(v1alpha1.ConditionServingReady, result)
	return nil
}

func (s *reconcileState) summarizeReplicas(ready int32) {
	status := s.backend.Status.Serving
	status.ReadyReplicas = ready
	status.Summary = fmt.Sprintf("%d/%d", ready, status.Replicas)
}

// isObserved reports whether the Deployment's status is of the last apply. applied is its
// generation, which may not be in the cache yet.
func isObserved(d *appsv1.Deployment, applied int64) bool {
	return d.Generation >= applied && d.Status.ObservedGeneration >= d.Generation
}

// rolloutResult returns ServingReady by the Deployment and its pods; probe refines it. It is True
// once every pod is available and of the newest revision.
func rolloutResult(d *appsv1.Deployment, applied int64, all pods) conditionResult {
	want := max(1, ptr.Deref(d.Spec.Replicas, 1)) // none serves nobody
	updated := d.Status.UpdatedReplicas
	if !isObserved(d, applied) {
		updated = 0
	}
	if updated == want && d.Status.Replicas == want && d.Status.AvailableReplicas == want {
		return conditionResult{metav1.ConditionTrue, v1alpha1.ReasonSucceeded, fmt.Sprintf("%d of %d pods are up to date and ready", want, want)}
	}
	if why := rolloutFailure(d, all); why != "" {
		return conditionResult{metav1.ConditionFalse, v1alpha1.ReasonRolloutFailed, why}
	}
	return conditionResult{
		metav1.ConditionFalse, v1alpha1.ReasonRollingOut,
		fmt.Sprintf("%d of %d pods are up to date, %d ready", updated, want, d.Status.ReadyReplicas),
	}
}

// rolloutFailure returns what keeps the rollout from progressing, or "".
func rolloutFailure(d *appsv1.Deployment, all pods) string {
	if d.Spec.Paused {
		return fmt.Sprintf("someone has paused it: kubectl rollout resume -n %s deployment/%s", d.Namespace, d.Name)
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return creationFailure(d, c.Message)
		}
	}
	var failures, notReady []string
	for _, p := range all {
		if why := startFailure(p.Pod); why != "" {
			failures = append(failures, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, why))
		}
		if !p.ready {
			notReady = append(notReady, p.Name)
		}
	}
	if len(failures) > 0 {
		return failures[0] + text.AndMore(len(failures)-1, "pod")
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("the rollout of Deployment %s/%s makes no progress; pods that are not ready: %s "+
				"(kubectl describe pod, kubectl logs)", d.Namespace, d.Name, strings.Join(notReady, ", "))
		}
	}
	return ""
}

// readPods reads the backend's pods, terminating ones separately.
func (r *Reconciler) readPods(ctx context.Context, s *reconcileState, d *appsv1.Deployment) error {
	hash, err := r.currentTemplateHash(ctx, s, d)
	if err != nil {
		return err
	}
	var list corev1.PodList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.serving.Namespace), client.MatchingLabels(s.serving.Selector())); err != nil {
		return fmt.Errorf("list serving pods: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	s.rollout.pods, s.rollout.terminating = nil, nil
	for i := range list.Items {
		p := &list.Items[i]
		if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		if p.DeletionTimestamp != nil {
			if p.Status.Phase == corev1.PodRunning {
				s.rollout.terminating = append(s.rollout.terminating, pod{Pod: p})
			}
			continue
		}
		s.rollout.pods = append(s.rollout.pods, pod{
			Pod: p, ready: isReady(p),
			current: hash != "" && p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == hash,
		})
	}
	return nil
}

// currentTemplateHash returns the pod-template-hash of the newest revision, or "".
func (r *Reconciler) currentTemplateHash(ctx context.Context, s *reconcileState, d *appsv1.Deployment) (string, error) {
	if !isObserved(d, s.rollout.appliedGeneration) {
		return "", nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"))
	if err := r.Client.List(ctx, list, client.InNamespace(s.serving.Namespace), client.MatchingLabels(s.serving.Selector())); err != nil {
		return "", fmt.Errorf("list ReplicaSets: %w", err)
	}
	for i := range list.Items {
		set := &list.Items[i]
		if metav1.IsControlledBy(set, d) && set.Annotations[revisionAnnotation] == d.Annotations[revisionAnnotation] {
			return set.Labels[appsv1.DefaultDeploymentUniqueLabelKey], nil
		}
	}
	return "", nil
}

// creationFailure returns why no pod can be created and what to do, from the message of
// kube-apiserver's refusal.
func creationFailure(d *appsv1.Deployment, message string) string {
	remedy := ""
	switch {
	case strings.Contains(message, "insufficient quota to match these scopes") && strings.Contains(message, "PriorityClass"):
		remedy = fmt.Sprintf(": this cluster limits the priority class %s to namespaces with a ResourceQuota for it: create one in namespace %s "+
			"(scopeSelector with scopeName PriorityClass), or set spec.serving.priorityClassName to a class without that limit",
			d.Spec.Template.Spec.PriorityClassName, d.Namespace)
	case strings.Contains(message, "exceeded quota: "):
		remedy = fmt.Sprintf(": raise that ResourceQuota of namespace %s", d.Namespace)
	}
	// The ReplicaSet controller backs off to 1,000 s, also after a policy that refused pods was changed.
	return fmt.Sprintf("no pod can be created: %s%s (the next attempt may be 17 minutes away; at once: kubectl rollout restart -n %s deployment/%s)",
		message, remedy, d.Namespace, d.Name)
}

// startFailure returns why a pod does not start and what to do, or "". It uses its own
// words where the kubelet's change with each attempt ("back-off 20s", then "40s";
// ErrImagePull, then ImagePullBackOff), so that the message is stable.
func startFailure(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return "no node can take it: " + c.Message
		}
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if waiting := c.State.Waiting; waiting != nil {
			if why := waitingFailure(c, waiting); why != "" {
				return why
			}
		}
		if !c.Ready && c.LastTerminationState.Terminated != nil && isCrashing(c) {
			return describeCrash(p, c)
		}
	}
	return ""
}

// imageSetting names where the image of serving is set.
const imageSetting = "spec.serving.image (by default the operator's --serving-image, in the chart serving.image)"

func waitingFailure(c *corev1.ContainerStatus, waiting *corev1.ContainerStateWaiting) string {
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		return fmt.Sprintf("image %s cannot be pulled (ImagePullBackOff): check %s, imagePullPolicy and imagePullSecrets", c.Image, imageSetting)
	case "InvalidImageName":
		return fmt.Sprintf("%s is not the name of an image (InvalidImageName): correct %s", c.Image, imageSetting)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return fmt.Sprintf("container %s cannot be started (%s): %s", c.Name, waiting.Reason, waiting.Message)
	}
	return ""
}

// manyRestarts is the number of restarts that alone means a crash. With fewer, the
// container may be warming up: readiness takes two samples.
const manyRestarts = 3

func isCrashing(c *corev1.ContainerStatus) bool {
	backsOff := c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	return backsOff && c.RestartCount > 1 || c.RestartCount >= manyRestarts
}

func describeCrash(p *corev1.Pod, c *corev1.ContainerStatus) string {
	last := c.LastTerminationState.Terminated
	why := fmt.Sprintf("ended with exit code %d", last.ExitCode)
	switch {
	case last.Reason == "OOMKilled":
		why = "ran out of memory, raise spec.serving.resources.limits.memory"
	case c.Name == manifests.ContainerName && strings.Contains(last.Message, "address already in use"):
		// The pod template makes the kubelet put the end of the log into Message.
		why = fmt.Sprintf("port %d is already in use on its node or, on AWS Fargate, by its kubelet: set spec.serving.port to another one, such as 10251", portOf(p))
	}
	if c.Name != manifests.ContainerName {
		why = fmt.Sprintf("container %s %s", c.Name, why)
	}
	return fmt.Sprintf("it crashes (CrashLoopBackOff), %s: kubectl logs -n %s %s -c %s --previous", why, p.Namespace, p.Name, c.Name)
}
