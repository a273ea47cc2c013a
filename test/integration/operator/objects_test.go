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
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/children"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
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
		Backend: "dry-run", Namespace: systemNamespace, Image: image, KubeletPort: 10250, AccountUID: "uid", Spec: spec.Serving,
	}
}

// kube-apiserver takes every object in every variant, under strict validation of
// its fields.
func TestObjectsAreAccepted(t *testing.T) {
	for name, change := range specs {
		t.Run(name, func(t *testing.T) {
			s := servingOf(change)
			objects := append(manifests.All(s), manifests.CASecret(s, manifests.Authorities{Certificate: []byte("c"), Key: []byte("k")}), manifests.TLSSecret(s, []byte("c"), []byte("k"), []byte("ca")))
			for _, gv := range manifests.KnownVersions() {
				objects = append(objects, manifests.APIService(s, gv, s.Target(secretCA(t))))
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

// secretCA is a certificate that an APIService's caBundle may hold.
func secretCA(t *testing.T) []byte {
	t.Helper()
	return suite.config.CAData
}

// Pods keep the restricted standard that their namespace enforces, in every
// variant but the one that cannot.
func TestPodsAreRestricted(t *testing.T) {
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

// eachChild calls f with the metadata of every object of a backend.
func eachChild(t *testing.T, backend string, f func(kind string, object *metav1.PartialObjectMetadata)) int {
	t.Helper()
	n := 0
	kinds := []string{"APIService"}
	gvks := map[string]metav1.TypeMeta{"APIService": {APIVersion: "apiregistration.k8s.io/v1", Kind: "APIServiceList"}}
	for _, kind := range children.Removable() {
		kinds = append(kinds, kind.Kind)
		gvks[kind.Kind] = metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind + "List"}
	}
	for _, kind := range kinds {
		list := &metav1.PartialObjectMetadataList{TypeMeta: gvks[kind]}
		if err := suite.admin.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelBackend: backend}); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			n++
			f(kind, &list.Items[i])
		}
	}
	return n
}

// Children have one field owner, no ownerReference, and nothing of the
// MetricsBackend's own metadata.
func TestChildrenMetadata(t *testing.T) {
	backend := newBackend("cluster")
	backend.Labels = map[string]string{"argocd.argoproj.io/instance": "app"}
	backend.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "app:x"}
	createBackend(t, backend)
	waitReady(t, "cluster")
	n := eachChild(t, "cluster", func(kind string, object *metav1.PartialObjectMetadata) {
		name := kind + " " + object.Name
		for key := range object.Labels {
			if strings.HasPrefix(key, "argocd") {
				t.Errorf("%s has the label %s of the MetricsBackend", name, key)
			}
		}
		for key := range object.Annotations {
			if strings.HasPrefix(key, "argocd") {
				t.Errorf("%s has the annotation %s of the MetricsBackend", name, key)
			}
		}
		if len(object.OwnerReferences) > 0 {
			t.Errorf("%s has ownerReferences", name)
		}
		i := slices.IndexFunc(object.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == v1alpha1.FieldOwner })
		if i < 0 || object.ManagedFields[i].Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("%s: managed by %+v", name, object.ManagedFields)
		}
	})
	if n < 18 {
		t.Errorf("only %d children", n)
	}
}

// What someone else changes or deletes is put right.
func TestDriftIsCorrected(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	caBundle, err := kubectl("get", "apiservice", "v1.metrics.k8s.io", "-o", "jsonpath={.spec.caBundle}")
	if err != nil {
		t.Fatal(caBundle)
	}
	cases := map[string]struct{ resource, patch, path, want string }{
		"replicas":          {"deployment/metrics-serving-cluster", `{"spec":{"replicas":5}}`, "{.spec.replicas}", "2"},
		"image":             {"deployment/metrics-serving-cluster", `{"spec":{"template":{"spec":{"containers":[{"name":"serving","image":"evil"}]}}}}`, "{.spec.template.spec.containers[0].image}", imageBoth},
		"rights":            {"clusterrole/metrics-serving-cluster-prober", `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`, "{.rules[*].verbs}", `["get"] ["list"]`},
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
			if out, err := kubectl("patch", tc.resource, "-n", systemNamespace, "--type="+kind, "-p", tc.patch); err != nil {
				t.Fatal(out)
			}
			eventually(t, patience, "drift is corrected", func(context.Context) error {
				out, err := kubectl("get", tc.resource, "-n", systemNamespace, "-o", "jsonpath="+tc.path)
				if err != nil || out != tc.want {
					return fmt.Errorf("%q, want %q (%v)", out, tc.want, err)
				}
				return nil
			})
			waitReady(t, "cluster")
		})
	}
	t.Run("deleted", func(t *testing.T) {
		uids := map[string]string{}
		var names []string
		eachChild(t, "cluster", func(kind string, object *metav1.PartialObjectMetadata) {
			key := kind + " " + object.Namespace + "/" + object.Name
			uids[key] = string(object.UID)
			names = append(names, key)
			target := &metav1.PartialObjectMetadata{TypeMeta: object.TypeMeta, ObjectMeta: object.ObjectMeta}
			if err := suite.admin.Delete(t.Context(), target); err != nil {
				t.Errorf("delete %s: %v", key, err)
			}
		})
		eventually(t, patience, "everything is made anew", func(context.Context) error {
			back := map[string]bool{}
			eachChild(t, "cluster", func(kind string, object *metav1.PartialObjectMetadata) {
				key := kind + " " + object.Namespace + "/" + object.Name
				back[key] = string(object.UID) != uids[key]
			})
			for _, name := range names {
				if !back[name] {
					return fmt.Errorf("%s is not back", name)
				}
			}
			return nil
		})
		waitReady(t, "cluster")
	})
}

// In a steady state nothing that is persisted changes, however often the operator
// looks; another MetricsBackend that comes and goes makes it look.
func TestSteadyStateWritesNothing(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	versions := func() map[string]string {
		out := map[string]string{"MetricsBackend": getBackend(t, "cluster").ResourceVersion}
		eachChild(t, "cluster", func(kind string, object *metav1.PartialObjectMetadata) {
			out[kind+" "+object.Namespace+"/"+object.Name] = object.ResourceVersion
		})
		return out
	}
	// The simulated controllers write once more after the backend is ready.
	var before map[string]string
	eventually(t, patience, "nothing changes any more", func(context.Context) error {
		previous := before
		before = versions()
		for name, version := range before {
			if previous[name] != version {
				return fmt.Errorf("%s changed", name)
			}
		}
		return nil
	})
	from := len(auditEvents(t))
	for range 10 { // looks that come at once are one
		look := newBackend("noise", func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = foreignNamespace })
		look.Name = "noise"
		if err := suite.admin.Create(t.Context(), look); err != nil {
			t.Fatal(err)
		}
		waitCondition(t, "noise", v1alpha1.ConditionStalled, metav1.ConditionTrue, "")
		deleteBackend(t, "noise")
	}
	for name, version := range versions() {
		if before[name] != version {
			t.Errorf("%s was written", name)
		}
	}
	looks := 0
	for _, e := range auditEvents(t)[from:] {
		switch {
		case e.Verb == "get" && e.ObjectRef.Resource == "metricsbackends" && e.ObjectRef.Name == "cluster":
			looks++
		case isWrite(e.Verb) && e.ObjectRef.Name != "noise" && e.ObjectRef.Subresource != "token" && e.ObjectRef.Resource != "events":
			t.Errorf("%s %s %s/%s", e.Verb, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name)
		}
	}
	if looks < 5 {
		t.Errorf("the operator looked only %d times: nothing was proven", looks)
	}
}

// The prober may read discovery and sources of serving pods, and nothing else.
func TestProberIsPowerless(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	user := "system:serviceaccount:" + systemNamespace + ":metrics-serving-cluster-prober"
	allowed := func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		t.Helper()
		spec.User, spec.Groups = user, []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace}
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		if err := suite.admin.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	for path, want := range map[string]bool{
		"/apis": true, "/apis/metrics.k8s.io/v1": true, "/sources": true, "/consumers": true, "/declared": true, "/metrics": false, "/": false, "/debug/pprof": false, "/configz": false,
	} {
		got := allowed(authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}})
		if got != want {
			t.Errorf("get %s: %t, want %t", path, got, want)
		}
	}
	metrics := func(verb, resource string) bool {
		return allowed(authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: "metrics.k8s.io", Resource: resource,
		}})
	}
	if !metrics("list", "nodes") || metrics("get", "nodes") || metrics("list", "pods") {
		t.Error("may do other with metrics than list those of nodes")
	}
	for _, r := range []string{"secrets", "pods", "configmaps", "nodes"} {
		if allowed(authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: r, Namespace: systemNamespace}}) {
			t.Errorf("may list %s", r)
		}
	}
}

// Deletion: versions leave discovery before anything that serves them goes, and
// nothing is left.
func TestDeletionInOrder(t *testing.T) {
	createBackend(t, newBackend("cluster"))
	waitReady(t, "cluster")
	from := len(auditEvents(t))
	guard := startGuard(t)
	deleteBackend(t, "cluster")
	guard.stop(t)
	var order []string
	for _, e := range auditEvents(t)[from:] {
		if e.Verb == "delete" && (len(order) == 0 || order[len(order)-1] != e.ObjectRef.Resource) {
			order = append(order, e.ObjectRef.Resource)
		}
	}
	want := []string{
		"apiservices", "poddisruptionbudgets", "deployments", "services", "secrets",
		"rolebindings", "roles", "clusterrolebindings", "clusterroles", "serviceaccounts",
	}
	if !slices.Equal(order, want) {
		t.Errorf("deleted in the order %v, want %v", order, want)
	}
	if n := eachChild(t, "cluster", func(kind string, object *metav1.PartialObjectMetadata) { t.Errorf("left: %s %s", kind, object.Name) }); n > 0 {
		t.Errorf("%d objects are left", n)
	}
	if got := discovered(t); len(got) > 0 {
		t.Errorf("discovery lists %v", got)
	}
}

func isWrite(verb string) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, verb)
}
