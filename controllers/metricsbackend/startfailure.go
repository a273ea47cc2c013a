// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

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
	return "no pod can be created: " + message + remedy
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
