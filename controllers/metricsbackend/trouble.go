// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// trouble is why a pod does not start and will not by itself, and what to do; or
// empty. The words are ours where the kubelet's change with each attempt
// ("back-off 20s", then "40s"; ErrImagePull, then ImagePullBackOff): a message
// that does not settle would be written over and over.
func trouble(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return "no node can take it: " + c.Message
		}
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if waiting := c.State.Waiting; waiting != nil {
			if why := waitingTrouble(c, waiting); why != "" {
				return why
			}
		}
		if !c.Ready && c.LastTerminationState.Terminated != nil && crashes(c) {
			return crashing(p, c)
		}
	}
	return ""
}

func waitingTrouble(c *corev1.ContainerStatus, waiting *corev1.ContainerStateWaiting) string {
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		return fmt.Sprintf("image %s cannot be pulled (ImagePullBackOff): check spec.serving.image, imagePullPolicy and imagePullSecrets", c.Image)
	case "InvalidImageName":
		return fmt.Sprintf("%s is not the name of an image (InvalidImageName): correct spec.serving.image", c.Image)
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return fmt.Sprintf("container %s cannot be started (%s): %s", c.Name, waiting.Reason, waiting.Message)
	}
	return ""
}

// manyRestarts is how often a container starts anew before that alone means that
// it crashes. After fewer it may be warming up: readiness takes two samples.
const manyRestarts = 3

func crashes(c *corev1.ContainerStatus) bool {
	backsOff := c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
	return backsOff && c.RestartCount > 1 || c.RestartCount >= manyRestarts
}

func crashing(p *corev1.Pod, c *corev1.ContainerStatus) string {
	last := c.LastTerminationState.Terminated
	why := fmt.Sprintf("ended with exit code %d", last.ExitCode)
	if last.Reason == "OOMKilled" {
		why = "ran out of memory, raise spec.serving.resources.limits.memory"
	}
	if c.Name != manifests.ContainerName {
		why = fmt.Sprintf("container %s %s", c.Name, why)
	}
	return fmt.Sprintf("it crashes (CrashLoopBackOff), %s: kubectl logs -n %s %s -c %s --previous", why, p.Namespace, p.Name, c.Name)
}

// others is " (and 2 more pods)", or empty.
func others(n int, what string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " (and 1 more " + what + ")"
	}
	return fmt.Sprintf(" (and %d more %ss)", n, what)
}
