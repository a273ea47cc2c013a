// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func deployment(t *testing.T, s Serving) *appsv1.Deployment {
	t.Helper()
	return typed[appsv1.Deployment](t, Deployment(s))
}

// What each field of spec.serving does to the Deployment.
func TestDeploymentFields(t *testing.T) {
	antiAffinity := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey:   "kubernetes.io/hostname",
				LabelSelector: &metav1.LabelSelector{MatchLabels: serving().Selector()},
			},
		}},
	}}
	ownAffinity := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
		Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "a", Operator: corev1.NodeSelectorOpExists}}},
	}}}}
	tolerations := []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](5)}}
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("200Mi"), corev1.ResourceCPU: resource.MustParse("1")}}

	cases := map[string]struct {
		spec func(*v1alpha1.ServingSpec)
		get  func(*appsv1.Deployment) any
		want any
	}{
		"replicas": {
			spec: func(s *v1alpha1.ServingSpec) { s.Replicas = ptr.To[int32](5) },
			get:  func(d *appsv1.Deployment) any { return *d.Spec.Replicas }, want: int32(5),
		},
		"image": {get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Image }, want: "image:1"},
		"pull policy": {
			spec: func(s *v1alpha1.ServingSpec) { s.ImagePullPolicy = corev1.PullAlways },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].ImagePullPolicy }, want: corev1.PullAlways,
		},
		"pull secrets": {
			spec: func(s *v1alpha1.ServingSpec) {
				s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}
			},
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.ImagePullSecrets },
			want: []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}},
		},
		"resources by default": {
			get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Resources },
			want: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
		},
		"resources": {
			spec: func(s *v1alpha1.ServingSpec) { s.Resources = &limits },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Resources }, want: limits,
		},
		"nodes by default": {get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.NodeSelector }, want: map[string]string{"kubernetes.io/os": "linux"}},
		"node selector": {
			spec: func(s *v1alpha1.ServingSpec) { s.NodeSelector = map[string]string{"pool": "infra"} },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.NodeSelector },
			want: map[string]string{"kubernetes.io/os": "linux", "pool": "infra"},
		},
		"tolerations": {
			spec: func(s *v1alpha1.ServingSpec) { s.Tolerations = tolerations },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Tolerations }, want: tolerations,
		},
		"affinity by default": {get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Affinity }, want: antiAffinity},
		"affinity": {
			spec: func(s *v1alpha1.ServingSpec) { s.Affinity = ownAffinity },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Affinity }, want: ownAffinity,
		},
		"priority class": {
			spec: func(s *v1alpha1.ServingSpec) { s.PriorityClassName = "high" },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.PriorityClassName }, want: "high",
		},
		"pod network": {get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.HostNetwork }, want: false},
		"host network": {
			spec: func(s *v1alpha1.ServingSpec) { s.HostNetwork = true },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.DNSPolicy }, want: corev1.DNSClusterFirstWithHostNet,
		},
		"port by default": {
			get:  func(d *appsv1.Deployment) any { return portAndFlag(d) },
			want: []string{"10250", "--secure-port=10250"},
		},
		"port by default in the nodes' network": {
			spec: func(s *v1alpha1.ServingSpec) { s.HostNetwork = true },
			get:  func(d *appsv1.Deployment) any { return portAndFlag(d) },
			want: []string{"10443", "--secure-port=10443"},
		},
		"port": {
			spec: func(s *v1alpha1.ServingSpec) { s.Port = ptr.To[int32](4443) },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Ports },
			want: []corev1.ContainerPort{{Name: "https", ContainerPort: 4443, Protocol: corev1.ProtocolTCP}},
		},
		"labels never replace ours": {
			spec: func(s *v1alpha1.ServingSpec) {
				s.Labels = map[string]string{"team": "a", v1alpha1.LabelBackend: "theirs"}
			},
			get: func(d *appsv1.Deployment) any {
				return []string{d.Labels["team"], d.Labels[v1alpha1.LabelBackend], d.Spec.Template.Labels["team"], d.Spec.Template.Labels[v1alpha1.LabelBackend]}
			},
			want: []string{"a", "b", "a", "b"},
		},
		"labels are not selected by": {
			spec: func(s *v1alpha1.ServingSpec) { s.Labels = map[string]string{"team": "a"} },
			get:  func(d *appsv1.Deployment) any { return d.Spec.Selector.MatchLabels }, want: serving().Selector(),
		},
		"annotations are the pods'": {
			spec: func(s *v1alpha1.ServingSpec) { s.Annotations = map[string]string{"note": "n"} },
			get: func(d *appsv1.Deployment) any {
				return []string{d.Spec.Template.Annotations["note"], d.Annotations["note"]}
			},
			want: []string{"n", ""},
		},
		"another account rolls the pods": {
			get: func(d *appsv1.Deployment) any { return d.Spec.Template.Annotations[annotationAccountUID] }, want: "account",
		},
		"no environment": {get: func(d *appsv1.Deployment) any { return len(d.Spec.Template.Spec.Containers[0].Env) }, want: 2},
		"environment": {
			spec: func(s *v1alpha1.ServingSpec) {
				s.Env = []corev1.EnvVar{{Name: "GOGC", Value: "50"}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
			},
			get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Env[2:] },
			want: []corev1.EnvVar{
				{Name: "GOGC", Value: "50"}, {Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
			},
		},
		"spread": {
			spec: func(s *v1alpha1.ServingSpec) {
				s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
					{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule},
					{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
				}
			},
			get: func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.TopologySpreadConstraints },
			want: []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: serving().Selector()}},
				{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
			},
		},
		"our own user": {
			get: func(d *appsv1.Deployment) any { return userOf(d) },
			want: []any{corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}, int32(0o440)},
		},
		"the platform's user": {
			spec: func(s *v1alpha1.ServingSpec) { s.UserFromPlatform = true },
			get:  func(d *appsv1.Deployment) any { return userOf(d) },
			want: []any{corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}, int32(0o444)},
		},
		"account of scrapes": {
			get:  func(d *appsv1.Deployment) any { return d.Spec.Template.Spec.Containers[0].Env[1] },
			want: corev1.EnvVar{Name: "SCRAPE_SERVICE_ACCOUNT", Value: "ns/metrics-serving-b-scrape"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var change []func(*v1alpha1.ServingSpec)
			if tc.spec != nil {
				change = append(change, tc.spec)
			}
			if diff := cmp.Diff(tc.want, tc.get(deployment(t, serving(change...)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// userOf returns the pod's users and groups, and who may read its Secret.
func userOf(d *appsv1.Deployment) []any {
	pod := d.Spec.Template.Spec
	return []any{*pod.SecurityContext, *pod.Volumes[0].Secret.DefaultMode}
}

// portAndFlag returns the container's port and the flag that makes serving listen on it.
func portAndFlag(d *appsv1.Deployment) []string {
	container := d.Spec.Template.Spec.Containers[0]
	return []string{strconv.Itoa(int(container.Ports[0].ContainerPort)), container.Args[1]}
}

func TestArguments(t *testing.T) {
	s := serving(func(spec *v1alpha1.ServingSpec) {
		spec.LogVerbosity, spec.Port = ptr.To[int32](4), ptr.To[int32](4443)
		spec.ExtraArgs = []string{"--profiling=false", "--audit-log-path=-"}
	})
	want := []string{
		"--backend=b", "--secure-port=4443",
		"--tls-cert-file=/etc/metrics-backend/tls/tls.crt", "--tls-private-key-file=/etc/metrics-backend/tls/tls.key",
		"--serving-ca-file=/etc/metrics-backend/tls/ca.crt",
		"--service-name=metrics-serving-b", "--service-namespace=ns",
		"--shutdown-delay-duration=15s", "--shutdown-send-retry-after=true", "-v=4",
		"--profiling=false", "--audit-log-path=-",
	}
	if diff := cmp.Diff(want, deployment(t, s).Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A rollout keeps every wanted pod, except where the node's port forbids it.
func TestRollingUpdate(t *testing.T) {
	cases := map[string]struct {
		replicas           int32
		hostNetwork        bool
		surge, unavailable int
	}{
		"two":                       {replicas: 2, surge: 1},
		"one":                       {replicas: 1, surge: 1},
		"two in the nodes' network": {replicas: 2, hostNetwork: true, unavailable: 1},
		"one in the node's network": {replicas: 1, hostNetwork: true, surge: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := deployment(t, serving(func(spec *v1alpha1.ServingSpec) {
				spec.Replicas, spec.HostNetwork = &tc.replicas, tc.hostNetwork
			}))
			rolling := d.Spec.Strategy.RollingUpdate
			if rolling.MaxSurge.IntValue() != tc.surge || rolling.MaxUnavailable.IntValue() != tc.unavailable {
				t.Errorf("maxSurge %v, maxUnavailable %v, want %d and %d", rolling.MaxSurge, rolling.MaxUnavailable, tc.surge, tc.unavailable)
			}
		})
	}
}

// The times fit together: a pod's end outlasts its shutdown delay, and it leaves
// the endpoints well within that delay.
func TestTimes(t *testing.T) {
	template := deployment(t, serving()).Spec.Template.Spec
	if grace := time.Duration(*template.TerminationGracePeriodSeconds) * time.Second; grace < shutdownDelay+30*time.Second {
		t.Errorf("a grace period of %s leaves too little after a delay of %s", grace, shutdownDelay)
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": template.Containers[0].StartupProbe, "liveness": template.Containers[0].LivenessProbe, "readiness": template.Containers[0].ReadinessProbe,
	} {
		if probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Port.StrVal != PortName || probe.TimeoutSeconds != 5 {
			t.Errorf("%s probe: %+v", name, probe)
		}
	}
	if path := template.Containers[0].ReadinessProbe.HTTPGet.Path; path != "/readyz" {
		t.Errorf("readiness asks %s", path)
	}
}
