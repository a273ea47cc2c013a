// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// progressDeadlineSeconds allows for a first readiness that may wait 90 s for rates.
	progressDeadlineSeconds int32 = 300
	revisionHistoryLimit    int32 = 3
)

// Deployment returns the Deployment of the serving pods.
func Deployment(s Serving) *appsv1ac.DeploymentApplyConfiguration {
	return appsv1ac.Deployment(s.Name(), s.Namespace).
		WithLabels(s.Labels()).
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

// rollingUpdate never goes below the desired number of ready pods, except for two or more
// pods in the host's network: they occupy their port, so that a surge pod may find no free
// node, and one of them is removed first. A single pod in the host's network stays until a
// node is free: its rollout waits rather than fail requests.
func rollingUpdate(s Serving) *appsv1ac.RollingUpdateDeploymentApplyConfiguration {
	surge, unavailable := int32(1), int32(0)
	if s.Spec.HostNetwork && *s.Spec.Replicas > 1 {
		surge, unavailable = 0, 1
	}
	return appsv1ac.RollingUpdateDeployment().
		WithMaxSurge(intstr.FromInt32(surge)).
		WithMaxUnavailable(intstr.FromInt32(unavailable))
}

const (
	// tlsDirectory is where TLSSecret is mounted.
	tlsDirectory = "/etc/metrics-backend/tls"
	tlsVolume    = "tls"

	// nonRoot is the user of the image and of the pod.
	nonRoot int64 = 65532
	// secretMode lets the pod's group, which is nonRoot, read the Secret's files, and
	// anyUserMode the pod's only container where the platform may set no group.
	secretMode  int32 = 0o440
	anyUserMode int32 = 0o444

	// terminationGracePeriodSeconds covers the shutdown delay, the draining of
	// watches, and the longest request.
	terminationGracePeriodSeconds int64 = 60

	// annotationAccountUID rolls the pods when their ServiceAccount is replaced by another
	// of the same name: a token is bound to the UID, and kubelets renew a pod's token only
	// shortly before it expires.
	annotationAccountUID = "metricsbackend.io/service-account-uid"
)

func podTemplate(s Serving) *corev1ac.PodTemplateSpecApplyConfiguration {
	files := corev1ac.SecretVolumeSource().WithSecretName(s.TLSSecretName()).WithDefaultMode(secretMode)
	if s.Spec.UserFromPlatform {
		files.WithDefaultMode(anyUserMode)
	}
	spec := corev1ac.PodSpec().
		WithServiceAccountName(s.Name()).
		WithAutomountServiceAccountToken(true).
		WithEnableServiceLinks(false).
		WithPriorityClassName(s.Spec.PriorityClassName).
		WithTerminationGracePeriodSeconds(terminationGracePeriodSeconds).
		WithSecurityContext(podSecurityContext(s)).
		WithNodeSelector(map[string]string{corev1.LabelOSStable: "linux"}).
		WithNodeSelector(s.Spec.NodeSelector).
		WithAffinity(affinity(s)).
		WithContainers(container(s)).
		WithVolumes(corev1ac.Volume().WithName(tlsVolume).WithSecret(files))
	for _, constraint := range s.Spec.TopologySpreadConstraints {
		if constraint.LabelSelector == nil {
			constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: s.Selector()}
		}
		spec.WithTopologySpreadConstraints(converted[corev1ac.TopologySpreadConstraintApplyConfiguration](&constraint))
	}
	for i := range s.Spec.Tolerations {
		spec.WithTolerations(converted[corev1ac.TolerationApplyConfiguration](&s.Spec.Tolerations[i]))
	}
	for _, secret := range s.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(secret.Name))
	}
	if s.Spec.HostNetwork {
		// The host's network resolves the cluster's names only with this policy.
		spec.WithHostNetwork(true).WithDNSPolicy(corev1.DNSClusterFirstWithHostNet)
	}
	return corev1ac.PodTemplateSpec().
		WithLabels(s.Labels()).
		WithAnnotations(map[string]string{
			// kubectl logs and exec default to this container.
			"kubectl.kubernetes.io/default-container": ContainerName,
			annotationAccountUID:                      string(s.AccountUID),
		}).
		WithAnnotations(s.Spec.Annotations).
		WithSpec(spec)
}

func podSecurityContext(s Serving) *corev1ac.PodSecurityContextApplyConfiguration {
	security := corev1ac.PodSecurityContext().
		WithRunAsNonRoot(true).
		WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))
	if s.Spec.UserFromPlatform {
		return security
	}
	return security.WithRunAsUser(nonRoot).WithRunAsGroup(nonRoot).WithFSGroup(nonRoot)
}

// affinity returns the user's affinity, or a preference for nodes without another pod of the
// backend.
func affinity(s Serving) *corev1ac.AffinityApplyConfiguration {
	if s.Spec.Affinity != nil {
		return converted[corev1ac.AffinityApplyConfiguration](s.Spec.Affinity)
	}
	return corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(corev1ac.WeightedPodAffinityTerm().
			WithWeight(100).
			WithPodAffinityTerm(corev1ac.PodAffinityTerm().
				WithTopologyKey(corev1.LabelHostname).
				WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())))))
}

// shutdownDelay is how long a pod serves after SIGTERM, until kube-proxy on every node and
// the aggregator have removed its address.
const shutdownDelay = 15 * time.Second

func container(s Serving) *corev1ac.ContainerApplyConfiguration {
	requirements := ptr.Deref(s.Spec.Resources, defaultResources())
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
		// The container has a minute to start; later, three failures within half a minute
		// restart it.
		WithStartupProbe(probe("/livez", 2*time.Second, 30)).
		WithLivenessProbe(probe("/livez", 10*time.Second, 3)).
		// With a short period, since rollouts wait for it.
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
		corev1ac.EnvVar().WithName(v1alpha1.ScrapeAccountVariable).WithValue(s.Namespace + "/" + s.ScrapeName()),
	}
	for i := range s.Spec.Env {
		env = append(env, converted[corev1ac.EnvVarApplyConfiguration](&s.Spec.Env[i]))
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

// defaultResources are sufficient for about 100 nodes. There is no default limit: one that is
// too low would end metrics for the whole cluster.
func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("50m"),
		corev1.ResourceMemory: resource.MustParse("64Mi"),
	}}
}

// converted converts an API type to its apply configuration, which has the same JSON. Fields
// that are not set stay unset, so that they are not owned.
func converted[Apply, Typed any](from *Typed) *Apply {
	data, err := json.Marshal(from)
	if err == nil {
		to := new(Apply)
		if err = json.Unmarshal(data, to); err == nil {
			return to
		}
	}
	// Both types are generated from one definition: a mismatch is a bug in this package.
	panic(fmt.Sprintf("convert %T to its apply configuration: %v", from, err))
}
