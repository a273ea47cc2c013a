// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1 "k8s.io/api/core/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
)

const (
	// tlsDirectory is where TLSSecret is mounted.
	tlsDirectory = "/etc/metrics-backend/tls"
	tlsVolume    = "tls"

	// nonRoot is the user of the image and of the pod.
	nonRoot int64 = 65532
	// secretMode lets the pod's group, which is nonRoot, read the Secret's files.
	secretMode int32 = 0o440

	// terminationGracePeriodSeconds covers the shutdown delay, the draining of
	// watches, and the longest request.
	terminationGracePeriodSeconds int64 = 60

	// annotationAccountUID rolls the pods when their ServiceAccount was replaced by
	// another of the same name: a token is bound to the UID, and kubelets renew
	// the one that a pod has only shortly before it expires.
	annotationAccountUID = "metricsbackend.io/service-account-uid"

	labelHostname = "kubernetes.io/hostname"
	labelOS       = "kubernetes.io/os"
)

func podTemplate(s Serving) *corev1ac.PodTemplateSpecApplyConfiguration {
	spec := corev1ac.PodSpec().
		WithServiceAccountName(s.Name()).
		WithAutomountServiceAccountToken(true).
		// Nothing of the pod needs the environment variables of other Services.
		WithEnableServiceLinks(false).
		WithPriorityClassName(s.Spec.PriorityClassName).
		WithTerminationGracePeriodSeconds(terminationGracePeriodSeconds).
		WithSecurityContext(podSecurityContext()).
		WithNodeSelector(map[string]string{labelOS: "linux"}).
		WithNodeSelector(s.Spec.NodeSelector).
		WithAffinity(affinity(s)).
		WithContainers(container(s)).
		WithVolumes(corev1ac.Volume().
			WithName(tlsVolume).
			WithSecret(corev1ac.SecretVolumeSource().
				WithSecretName(s.TLSSecretName()).
				WithDefaultMode(secretMode)))
	for i := range s.Spec.Tolerations {
		spec.WithTolerations(converted[corev1ac.TolerationApplyConfiguration](&s.Spec.Tolerations[i]))
	}
	for _, secret := range s.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(secret.Name))
	}
	if s.Spec.HostNetwork {
		// Names of the cluster resolve in the node's network only with this policy.
		spec.WithHostNetwork(true).WithDNSPolicy(corev1.DNSClusterFirstWithHostNet)
	}
	return corev1ac.PodTemplateSpec().
		WithLabels(s.userLabels()).
		WithAnnotations(map[string]string{
			// kubectl logs and exec take this container without asking.
			"kubectl.kubernetes.io/default-container": ContainerName,
			annotationAccountUID:                      string(s.AccountUID),
		}).
		WithAnnotations(s.Spec.Annotations).
		WithSpec(spec)
}

func podSecurityContext() *corev1ac.PodSecurityContextApplyConfiguration {
	return corev1ac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithRunAsUser(nonRoot).
		WithRunAsGroup(nonRoot).
		WithFSGroup(nonRoot).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
}

// affinity prefers a node without another pod of the backend; the user's own
// replaces it as a whole.
func affinity(s Serving) *corev1ac.AffinityApplyConfiguration {
	if s.Spec.Affinity != nil {
		return converted[corev1ac.AffinityApplyConfiguration](s.Spec.Affinity)
	}
	return corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(corev1ac.WeightedPodAffinityTerm().
			WithWeight(100).
			WithPodAffinityTerm(corev1ac.PodAffinityTerm().
				WithTopologyKey(labelHostname).
				WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())))))
}
