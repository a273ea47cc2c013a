// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// shutdownDelay is how long a pod goes on serving after SIGTERM, while its
// address leaves every node's proxy and the aggregator.
const shutdownDelay = 15 * time.Second

func container(s Serving) *corev1ac.ContainerApplyConfiguration {
	requirements := resources(s)
	return corev1ac.Container().
		WithName(ContainerName).
		WithImage(s.Image).
		WithImagePullPolicy(s.Spec.ImagePullPolicy).
		WithArgs(arguments(s)...).
		WithEnv(environment(s)...).
		WithPorts(corev1ac.ContainerPort().
			WithName(PortName).
			WithProtocol(corev1.ProtocolTCP).
			WithContainerPort(*s.Spec.Port)).
		WithResources(converted[corev1ac.ResourceRequirementsApplyConfiguration](&requirements)).
		WithSecurityContext(corev1ac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithRunAsNonRoot(true).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))).
		WithVolumeMounts(corev1ac.VolumeMount().
			WithName(tlsVolume).
			WithMountPath(tlsDirectory).
			WithReadOnly(true)).
		// A minute to start, then three misses in half a minute end the container.
		WithStartupProbe(probe("/livez", 2*time.Second, 30)).
		WithLivenessProbe(probe("/livez", 10*time.Second, 3)).
		// Often, because a rollout waits for it.
		WithReadinessProbe(probe("/readyz", 5*time.Second, 3)).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError)
}

func arguments(s Serving) []string {
	return append([]string{
		"--backend=" + s.Backend,
		"--secure-port=" + strconv.Itoa(int(*s.Spec.Port)),
		"--tls-cert-file=" + tlsDirectory + "/" + v1alpha1.SecretKeyCertificate,
		"--tls-private-key-file=" + tlsDirectory + "/" + v1alpha1.SecretKeyPrivateKey,
		"--serving-ca-file=" + tlsDirectory + "/" + v1alpha1.SecretKeyCA,
		"--service-name=" + s.Name(),
		"--service-namespace=" + s.Namespace,
		"--shutdown-delay-duration=" + shutdownDelay.String(),
		"--shutdown-send-retry-after=true",
		"-v=" + strconv.Itoa(int(*s.Spec.LogVerbosity)),
	}, s.Spec.ExtraArgs...)
}

func environment(s Serving) []*corev1ac.EnvVarApplyConfiguration {
	env := []*corev1ac.EnvVarApplyConfiguration{
		corev1ac.EnvVar().WithName("POD_IP").WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithAPIVersion("v1").WithFieldPath("status.podIP"))),
	}
	// Go sizes GOMAXPROCS by the CPU limit itself, but knows no memory limit: a
	// tenth is left for what the Go heap does not count.
	if limit, ok := resources(s).Limits[corev1.ResourceMemory]; ok {
		bytes := limit.Value() / 10 * 9
		env = append(env, corev1ac.EnvVar().WithName("GOMEMLIMIT").WithValue(strconv.FormatInt(bytes, 10)))
	}
	return env
}

func probe(path string, period time.Duration, failures int32) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithHTTPGet(corev1ac.HTTPGetAction().
			WithScheme(corev1.URISchemeHTTPS).
			WithPath(path).
			WithPort(intstr.FromString(PortName))).
		WithPeriodSeconds(int32(period.Seconds())).
		WithTimeoutSeconds(5).
		WithFailureThreshold(failures)
}
