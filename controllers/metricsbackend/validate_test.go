// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// TestStalled has each reason to stall: its message, that nothing is registered, nor
// deployed unless only the registration is blocked, and that the backend becomes ready
// once it ends.
func TestStalled(t *testing.T) {
	t.Parallel()
	foreign := stockAPIService()
	local := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.metrics.k8s.io"}}
	otherBackends := foreign.DeepCopy()
	otherBackends.Labels = map[string]string{v1alpha1.LabelBackend: "other"}
	orphan := foreign.DeepCopy()
	orphan.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: systemNamespace, Name: "metrics-serving-cluster"}
	older := olderBackend(onlyV1)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "metrics-serving-cluster"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "pull"}}

	remove := func(o client.Object) func(*fakeCluster) {
		return func(fc *fakeCluster) { fc.delete(o) }
	}
	cases := map[string]struct {
		spec     func(*v1alpha1.MetricsBackendSpec)
		objects  []client.Object
		reason   string
		messages []string
		// deploys: only the registration of a version is blocked.
		deploys bool
		mend    func(*fakeCluster)
	}{
		"namespace is not managed": {
			spec:     func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Namespace = "foreign" },
			reason:   v1alpha1.ReasonNamespaceNotManaged,
			messages: []string{`namespace "foreign"`, "only operator-ns, other-ns", "--namespaces"},
		},
		"namespace does not exist": {
			spec:     func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Namespace = "other-ns" },
			reason:   v1alpha1.ReasonNamespaceMissing,
			messages: []string{`namespace "other-ns" does not exist`, "kubectl create namespace other-ns"},
			mend: func(fc *fakeCluster) {
				fc.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other-ns"}})
			},
		},
		"namespace is being deleted": {
			spec: func(s *v1alpha1.MetricsBackendSpec) { s.Serving.Namespace = "other-ns" },
			objects: []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "other-ns", Finalizers: []string{"kubernetes"}, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)},
			}}},
			reason: v1alpha1.ReasonNamespaceTerminating, messages: []string{`namespace "other-ns" is being deleted`},
		},
		"serving refuses the spec": {
			spec: func(s *v1alpha1.MetricsBackendSpec) {
				s.ResourceMetrics.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c d"}}
			},
			reason: v1alpha1.ReasonInvalid, messages: []string{"the spec cannot be used", "spec.resourceMetrics.scrape.nodeSelector.matchLabels"},
			mend: func(fc *fakeCluster) {
				fc.change(func(s *v1alpha1.MetricsBackendSpec) { s.ResourceMetrics.Scrape.NodeSelector = nil })
			},
		},
		"pull secret is missing": {
			spec: func(s *v1alpha1.MetricsBackendSpec) {
				s.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
			},
			reason: v1alpha1.ReasonSecretMissing, messages: []string{"Secret operator-ns/pull", "create it"},
			mend: func(fc *fakeCluster) { fc.create(secret.DeepCopy()) },
		},
		"older backend claims a version": {
			objects: []client.Object{older}, reason: v1alpha1.ReasonConflict,
			messages: []string{`MetricsBackend "older" is older and claims v1.metrics.k8s.io`},
			deploys:  true,
			mend:     remove(older),
		},
		"metrics-server is there": {
			objects: []client.Object{foreign}, reason: v1alpha1.ReasonNotOwned,
			messages: []string{"v1beta1.metrics.k8s.io", "Service kube-system/metrics-server", "kubectl delete apiservice v1beta1.metrics.k8s.io", "spec.resourceMetrics.versions"},
			deploys:  true,
			mend:     remove(foreign),
		},
		"a backend that does not exist holds a version": {
			spec: adopting(v1alpha1.AdoptionAlways), objects: []client.Object{otherBackends}, reason: v1alpha1.ReasonNotOwned,
			messages: []string{
				`v1beta1.metrics.k8s.io belongs to MetricsBackend "other", which does not exist: delete it (kubectl delete apiservice v1beta1.metrics.k8s.io)`,
			},
			deploys: true, mend: remove(otherBackends),
		},
		"kube-apiserver serves a version itself": {
			objects: []client.Object{local}, reason: v1alpha1.ReasonNotOwned,
			messages: []string{"v1.metrics.k8s.io is served by kube-apiserver itself"}, deploys: true, mend: remove(local),
		},
		"an APIService lost its label": {
			objects: []client.Object{orphan}, reason: v1alpha1.ReasonNotOwned,
			messages: []string{"kubectl label apiservice v1beta1.metrics.k8s.io metricsbackend.io/backend=cluster"}, mend: remove(orphan),
		},
		"a child belongs to someone": {
			objects: []client.Object{service}, reason: v1alpha1.ReasonNotOwned,
			messages: []string{"Service operator-ns/metrics-serving-cluster", "metricsbackend.io/backend=cluster"}, mend: remove(service),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			backend := newBackend()
			if tc.spec != nil {
				tc.spec(&backend.Spec)
			}
			objects := []client.Object{backend}
			for _, o := range tc.objects {
				objects = append(objects, o.DeepCopyObject().(client.Object))
			}
			fc := newFakeCluster(t, objects...)
			r := fc.reconciler()
			fc.reconcileRounds(r, 5)
			for _, kind := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReady} {
				fc.wantCondition(kind, "", tc.reason, tc.messages...)
			}
			fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, "")
			if fc.condition(v1alpha1.ConditionReconciling).Type != "" {
				t.Error("Reconciling and Stalled at once")
			}
			for _, s := range fc.backend().Status.APIServices {
				if tc.deploys && s.State != v1alpha1.APIServicePending {
					t.Errorf("%s is %s while stalled", s.Name, s.State)
				}
			}
			if deployed := len(fc.pods()) > 0; deployed != tc.deploys || fc.ownedCount() > 0 {
				t.Errorf("%d pods, %d APIServices of ours while stalled", len(fc.pods()), fc.ownedCount())
			}
			if tc.mend == nil {
				return
			}
			tc.mend(fc)
			fc.reconcileUntil(r, fc.isReady)
			if fc.condition(v1alpha1.ConditionStalled).Type != "" {
				t.Error("still Stalled")
			}
		})
	}
}

// Without the ClusterRole for the objects of custom metrics, as with a namePrefix, only these lack something.
func TestObjectsRoleMissing(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(withAllGroups))
	fc.delete(objectsRole())
	r := fc.reconciler()
	isBound := func() bool {
		return fc.raw.Get(t.Context(), client.ObjectKey{Name: "metrics-serving-" + backendName + "-objects"}, &rbacv1.ClusterRoleBinding{}) == nil
	}
	isStalled := func() bool { return fc.isStalledBy(v1alpha1.ReasonForbidden) }
	fc.reconcileUntil(r, isStalled)
	fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, "", "ClusterRole metrics-backend-serving-objects does not exist", "namePrefix", "remove spec.customMetrics")
	fc.wantCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForbidden)
	fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
	fc.wantRegistered("v1", "v1beta1", "v1beta1", "v1beta1", "v1beta2")
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Replicas = ptr.To[int32](3) })
	fc.reconcileUntil(r, func() bool { return isStalled() && len(fc.pods()) == 3 })
	if isBound() {
		t.Error("a role that does not exist is bound")
	}
	fc.create(objectsRole())
	fc.reconcileUntil(r, fc.isReady)
	if !isBound() {
		t.Error("the role is not bound")
	}
}

func (fc *fakeCluster) ownedCount() int {
	n := 0
	for _, service := range fc.apiServices() {
		if service.Labels[v1alpha1.LabelBackend] == backendName {
			n++
		}
	}
	return n
}

// TestRefusals has the answers of kube-apiserver that need a user.
func TestRefusals(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err    error
		reason string
	}{
		"forbidden": {apierrors.NewForbidden(corev1.Resource("services"), "metrics-serving-cluster", nil), v1alpha1.ReasonForbidden},
		"invalid":   {apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Service").GroupKind(), "x", nil), v1alpha1.ReasonInvalid},
		"malformed": {apierrors.NewBadRequest("no"), v1alpha1.ReasonInvalid},
		"namespace ends at this moment": {&apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonForbidden, Code: 403,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
		}}, v1alpha1.ReasonNamespaceTerminating},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := newFakeCluster(t, newBackend())
			r := fc.reconciler(interceptor.Funcs{
				Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
					return tc.err
				},
			})
			for range 3 {
				if _, err := reconcileOnce(t, r); err != nil {
					t.Fatalf("retried with backoff, as if it would pass by itself: %v", err)
				}
			}
			if got := fc.condition(v1alpha1.ConditionStalled); got.Reason != tc.reason || got.Message == "" {
				t.Errorf("Stalled is %+v, want reason %s", got, tc.reason)
			}
		})
	}
}

// A terminating serving namespace, and an older backend that claims a version, retire
// registered versions at once, and leave the pods alone.
func TestRetiresWhileStalled(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		happen func(*fakeCluster)
		reason string
		left   []string
	}{
		"namespace ends": {
			happen: (*fakeCluster).deleteNamespace,
			reason: v1alpha1.ReasonNamespaceTerminating,
		},
		"older backend claims v1": {
			happen: func(fc *fakeCluster) { fc.create(olderBackend(onlyV1)) },
			reason: v1alpha1.ReasonConflict,
			left:   []string{"v1beta1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			pods := len(fc.pods())
			tc.happen(fc)
			fc.reconcileUntil(r, func() bool {
				return strings.Join(fc.registeredVersions(), " ") == strings.Join(tc.left, " ") &&
					fc.condition(v1alpha1.ConditionStaleAPIServicesRemoved).Status == metav1.ConditionTrue
			})
			if got := len(fc.pods()); got != pods {
				t.Errorf("%d pods, want %d", got, pods)
			}
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, tc.reason)
		})
	}
}

func TestCompareAge(t *testing.T) {
	t.Parallel()
	at := func(name string, second int64) *v1alpha1.MetricsBackend {
		return &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
	}
	cases := map[string]struct {
		a, b *v1alpha1.MetricsBackend
		want bool
	}{
		"before":                      {at("b", 1), at("a", 2), true},
		"after":                       {at("a", 2), at("b", 1), false},
		"same second, first by name":  {at("a", 1), at("b", 1), true},
		"same second, second by name": {at("b", 1), at("a", 1), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := compareAge(tc.a, tc.b) < 0; got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// A spec that the CRD's schema accepts and serving rejects breaks nothing of a backend
// that works.
func TestSpecThatServingRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change  func(*v1alpha1.ResourceMetricsSpec)
		message string
	}{
		"CA bundle with a certificate that is none": {
			change: func(rm *v1alpha1.ResourceMetricsSpec) {
				rm.KubeletTLS.CABundle = []byte("-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n")
			},
			message: "spec.resourceMetrics.kubeletTLS.caBundle",
		},
		"label that cannot be": {
			change: func(rm *v1alpha1.ResourceMetricsSpec) {
				rm.Scrape.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c d"}}
			},
			message: "spec.resourceMetrics.scrape.nodeSelector.matchLabels",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc, r := ready(t)
			pods, registered := len(fc.pods()), fc.ownedCount()
			fc.change(func(s *v1alpha1.MetricsBackendSpec) { tc.change(s.ResourceMetrics) })
			fc.reconcileUntil(r, func() bool { return fc.isStalledBy(v1alpha1.ReasonInvalid) })
			fc.wantCondition(v1alpha1.ConditionReady, "", "", "the spec cannot be used", "kubectl edit metricsbackend "+backendName, tc.message)
			if len(fc.pods()) != pods || fc.ownedCount() != registered {
				t.Errorf("%d pods, %d APIServices, want %d, %d as before", len(fc.pods()), fc.ownedCount(), pods, registered)
			}
			fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "")
		})
	}
}
