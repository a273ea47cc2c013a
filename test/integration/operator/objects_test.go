// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// specs are variants of spec.serving that together set every field.
var specs = map[string]func(*v1alpha1.ServingSpec){
	"defaults": func(*v1alpha1.ServingSpec) {},
	"placement": func(s *v1alpha1.ServingSpec) {
		s.NodeSelector = map[string]string{"pool": "infra"}
		s.Tolerations = []corev1.Toleration{
			{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			{Key: "a", Operator: corev1.TolerationOpEqual, Value: "b", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](60)},
		}
		s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}},
		}}}
		s.PriorityClassName = "system-node-critical"
	},
	"container": func(s *v1alpha1.ServingSpec) {
		s.Image, s.ImagePullPolicy = "registry.example.com:5000/serving@sha256:"+strings.Repeat("a", 64), corev1.PullAlways
		s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		s.Resources = &corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.1")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
		}
		s.Port, s.LogVerbosity = ptr.To[int32](4443), ptr.To[int32](0)
		s.ExtraArgs = []string{"--profiling=false"}
	},
	"metadata": func(s *v1alpha1.ServingSpec) {
		s.Labels, s.Annotations = map[string]string{"team": "a"}, map[string]string{"example.com/note": "some text"}
		s.ServiceAccountAnnotations = map[string]string{"iam.gke.io/gcp-service-account": "a@b.iam.gserviceaccount.com"}
	},
	"platform": func(s *v1alpha1.ServingSpec) {
		s.UserFromPlatform = true
		s.CAConfigMapKeyRef = &v1alpha1.ConfigMapKeyReference{Name: "bundle", Key: "ca.pem"}
		s.Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, {Name: "GOGC", Value: "50"}}
		s.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.DoNotSchedule, MatchLabelKeys: []string{"pod-template-hash"}},
		}
	},
	"one replica with a policy": func(s *v1alpha1.ServingSpec) {
		s.Replicas, s.NetworkPolicy = ptr.To[int32](1), v1alpha1.NetworkPolicyRestricted
	},
	"the nodes' network": func(s *v1alpha1.ServingSpec) { s.HostNetwork = true },
}

func servingOf(change func(*v1alpha1.ServingSpec)) manifests.Serving {
	spec := v1alpha1.MetricsBackendSpec{}
	change(&spec.Serving)
	v1alpha1.SetDefaults(&spec)
	image := spec.Serving.Image
	if image == "" {
		image = imageBoth
	}
	return manifests.Serving{
		Backend: "dry-run", Namespace: systemNamespace, Image: image, KubeletPort: 10250, AccountUID: "uid", Quota: true, Spec: spec.Serving,
	}
}

// kube-apiserver takes every object in every variant, under strict validation of
// its fields.
func TestObjectsAreAccepted(t *testing.T) {
	suite := take(t)
	for name, change := range specs {
		t.Run(name, func(t *testing.T) {
			s := servingOf(change)
			objects := append(manifests.All(s), manifests.CASecret(s, manifests.Authorities{Current: servingcert.KeyPair{Certificate: []byte("c"), Key: []byte("k")}}), manifests.TLSSecret(s, []byte("c"), []byte("k"), []byte("ca")))
			for _, gv := range manifests.KnownVersions() {
				objects = append(objects, manifests.APIService(s, gv, s.Target(suite.config.CAData)))
			}
			for _, object := range objects {
				err := suite.admin.Apply(t.Context(), object, client.FieldOwner("test"), client.ForceOwnership, client.DryRunAll)
				if err != nil {
					t.Errorf("%s %s: %v", *object.GetKind(), *object.GetName(), err)
				}
			}
		})
	}
}

// Pods keep the restricted standard that their namespace enforces, in every
// variant but the one that cannot.
func TestPodsAreRestricted(t *testing.T) {
	suite := take(t)
	for name, change := range specs {
		t.Run(name, func(t *testing.T) {
			template := podTemplate(t, servingOf(change))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "restricted", Labels: template.Labels}, Spec: template.Spec}
			err := suite.admin.Create(t.Context(), pod, client.DryRunAll)
			switch {
			case template.Spec.HostNetwork && !apierrors.IsForbidden(err):
				t.Errorf("got %v: the namespace enforces nothing", err)
			case !template.Spec.HostNetwork && err != nil:
				t.Error(err)
			}
		})
	}
	t.Run("the operator's own", func(t *testing.T) {
		deployment := &appsv1.Deployment{}
		if err := suite.admin.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-backend-operator"}, deployment); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "operator"}, Spec: deployment.Spec.Template.Spec}
		if err := suite.admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Error(err)
		}
	})
}

func podTemplate(t *testing.T, s manifests.Serving) corev1.PodTemplateSpec {
	t.Helper()
	body, err := json.Marshal(manifests.Deployment(s))
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := json.Unmarshal(body, &deployment); err != nil {
		t.Fatal(err)
	}
	return deployment.Spec.Template
}

// childKinds are the kinds of a backend's objects.
func childKinds() []schema.GroupVersionKind {
	kinds := []schema.GroupVersionKind{apiregistrationv1.SchemeGroupVersion.WithKind("APIService")}
	for _, kind := range inventory.Removable() {
		kinds = append(kinds, kind.GroupVersionKind)
	}
	return kinds
}

// listChildren returns the metadata of every object of a backend, each with its kind.
func listChildren(t *testing.T, suite *controlPlane, backend string) []metav1.PartialObjectMetadata {
	t.Helper()
	var all []metav1.PartialObjectMetadata
	for _, kind := range childKinds() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := suite.admin.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelBackend: backend}); err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			object.Kind = kind.Kind
			all = append(all, object)
		}
	}
	return all
}

// Children have one field owner, no ownerReference, and nothing of the
// MetricsBackend's own metadata.
func TestChildrenMetadata(t *testing.T) {
	suite := take(t)
	backend := newBackend("cluster")
	backend.Labels = map[string]string{"argocd.argoproj.io/instance": "app"}
	backend.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "app:x"}
	createBackend(t, suite, backend)
	waitReady(t, suite, "cluster")
	objects := listChildren(t, suite, "cluster")
	for _, object := range objects {
		name := object.Kind + " " + object.Name
		for _, metadata := range []map[string]string{object.Labels, object.Annotations} {
			for key := range metadata {
				if strings.HasPrefix(key, "argocd") {
					t.Errorf("%s has %s of the MetricsBackend", name, key)
				}
			}
		}
		if len(object.OwnerReferences) > 0 {
			t.Errorf("%s has ownerReferences", name)
		}
		i := slices.IndexFunc(object.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == v1alpha1.FieldOwner })
		if i < 0 || object.ManagedFields[i].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("%s: managed by %+v", name, object.ManagedFields)
		}
	}
	if len(objects) < 18 {
		t.Errorf("only %d children", len(objects))
	}
}

// What someone else changes is put right.
func TestDriftIsCorrected(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	caBundle := mustKubectl(t, suite, "get", "apiservice", "v1.metrics.k8s.io", "-o", "jsonpath={.spec.caBundle}")
	cases := map[string]struct{ resource, patch, path, want string }{
		"replicas":          {"deployment/metrics-serving-cluster", `{"spec":{"replicas":5}}`, "{.spec.replicas}", "2"},
		"image":             {"deployment/metrics-serving-cluster", `{"spec":{"template":{"spec":{"containers":[{"name":"serving","image":"evil"}]}}}}`, "{.spec.template.spec.containers[0].image}", imageBoth},
		"rights":            {"clusterrole/metrics-serving-cluster-prober", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, "{.rules[*].verbs}", `["get"] ["list"]`},
		"rights of scrapes": {"clusterrole/metrics-serving-cluster-scrape", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, "{.rules[*].resources}", `["nodes/metrics"]`},
		"selector":          {"service/metrics-serving-cluster", `{"spec":{"selector":{"metricsbackend.io/backend":"other"}}}`, "{.spec.selector.metricsbackend\\.io/backend}", "cluster"},
		"unverified TLS":    {"apiservice/v1.metrics.k8s.io", `{"spec":{"insecureSkipTLSVerify":true,"caBundle":null}}`, "{.spec.insecureSkipTLSVerify}", ""},
		"blanked caBundle":  {"apiservice/v1.metrics.k8s.io", `{"spec":{"caBundle":null}}`, "{.spec.caBundle}", caBundle},
		"priority":          {"apiservice/v1.metrics.k8s.io", `{"spec":{"versionPriority":1}}`, "{.spec.versionPriority}", "200"},
		"token in the pods": {"serviceaccount/metrics-serving-cluster", `{"automountServiceAccountToken":true}`, "{.automountServiceAccountToken}", "false"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			kind := "merge"
			if strings.HasPrefix(tc.resource, "deployment") {
				kind = "strategic"
			}
			mustKubectl(t, suite, "patch", tc.resource, "-n", systemNamespace, "--type="+kind, "-p", tc.patch)
			outcome.Eventually(t, patience, "drift is corrected", func(context.Context) error {
				out, err := kubectl(suite, "get", tc.resource, "-n", systemNamespace, "-o", "jsonpath="+tc.path)
				if err != nil || out != tc.want {
					return fmt.Errorf("%q, want %q (%v)", out, tc.want, err)
				}
				return nil
			})
			waitReady(t, suite, "cluster")
		})
	}
}
