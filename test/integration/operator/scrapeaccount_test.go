// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// With what the operator grants, serving pods can request the token for kubelets, and no other; that token allows to
// get nodes/metrics, which serving's own account may not, and nothing else.
func TestScrapeAccount(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	const account = "metrics-serving-cluster"
	serving := servingClient(t, suite, account)
	request := func(name string) (*authenticationv1.TokenRequest, error) {
		return serving.CoreV1().ServiceAccounts(systemNamespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	}
	for _, other := range []string{account, account + "-prober", "metrics-backend-operator"} {
		if _, err := request(other); !apierrors.IsForbidden(err) {
			t.Errorf("request a token of %s: got %v, want Forbidden", other, err)
		}
	}
	answer, err := request(account + "-scrape")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for user, of := range map[string]kubernetes.Interface{"serving": serving, "scrape": tokenClient(t, suite, answer)} {
		got[user] = allowed(t, of,
			authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "metrics"},
			authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "proxy"},
			authorizationv1.ResourceAttributes{Verb: "get", Resource: "nodes", Subresource: "stats"},
			authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"},
			authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: systemNamespace},
			authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: systemNamespace, Name: account + "-scrape"},
			authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		)
	}
	want := map[string][]string{
		"serving": {"list nodes/", "create serviceaccounts/token " + account + "-scrape", "create tokenreviews/"},
		"scrape":  {"get nodes/metrics"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
}

// While a source is another implementation, serving pods can request the token for it and get its Service; that token
// allows to get and list custom and external metrics, and nothing else. Without such a source, nothing of that is left.
func TestMetricsAPIAccount(t *testing.T) {
	suite := take(t)
	const account = "metrics-serving-cluster"
	createBackend(t, suite, newBackend("cluster", func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Sources = []v1alpha1.SourceSpec{{Name: "keda", Optional: true, MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: "keda", Name: "keda-adapter"}, Group: v1alpha1.ExternalMetricsGroup,
		}}}
	}))
	waitReady(t, suite, "cluster")
	serving := servingClient(t, suite, account)
	answer, err := serving.CoreV1().ServiceAccounts(systemNamespace).CreateToken(t.Context(), account+"-metricsapi", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: systemNamespace, Name: account + "-metricsapi"}
	access := []authorizationv1.ResourceAttributes{
		{Verb: "get", Group: "external.metrics.k8s.io", Resource: "queue", Namespace: "team"},
		{Verb: "list", Group: "external.metrics.k8s.io", Resource: "queue", Namespace: "team"},
		{Verb: "get", Group: "custom.metrics.k8s.io", Resource: "pods/hits", Namespace: "team"},
		{Verb: "list", Group: "custom.metrics.k8s.io", Resource: "namespaces/hits"},
		{Verb: "watch", Group: "custom.metrics.k8s.io", Resource: "pods/hits", Namespace: "team"},
		{Verb: "list", Group: "metrics.k8s.io", Resource: "pods"},
		{Verb: "get", Resource: "services", Namespace: "keda", Name: "keda-adapter"},
		{Verb: "get", Resource: "services", Namespace: "keda", Name: "other"},
		{Verb: "list", Resource: "services", Namespace: "keda"},
		token,
	}
	got := map[string][]string{"serving": allowed(t, serving, access...), "metricsapi": allowed(t, tokenClient(t, suite, answer), access...)}
	want := map[string][]string{
		"serving":    {"get services/ keda-adapter", "create serviceaccounts/token " + account + "-metricsapi"},
		"metricsapi": {"get queue/", "list queue/", "get pods/hits/", "list namespaces/hits/"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}

	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Sources = nil })
	waitReady(t, suite, "cluster")
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}} {
		key := client.ObjectKey{Name: account + "-metricsapi"}
		if _, namespaced := object.(*corev1.ServiceAccount); namespaced {
			key.Namespace = systemNamespace
		}
		if err := suite.admin.Get(t.Context(), key, object); !apierrors.IsNotFound(err) {
			t.Errorf("get %T: %v, want NotFound", object, err)
		}
	}
	outcome.Eventually(t, time.Minute, "serving has no right for sources that are gone", func(context.Context) error {
		if left := allowed(t, serving, access...); len(left) > 0 {
			return fmt.Errorf("still allowed: %v", left)
		}
		return nil
	})
}

// servingClient returns a client with the rights of serving pods.
func servingClient(t *testing.T, suite *controlPlane, account string) kubernetes.Interface {
	t.Helper()
	impersonating := rest.CopyConfig(suite.config)
	impersonating.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + systemNamespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
	}
	return clientOf(t, impersonating)
}

func tokenClient(t *testing.T, suite *controlPlane, answer *authenticationv1.TokenRequest) kubernetes.Interface {
	t.Helper()
	withToken := rest.AnonymousClientConfig(suite.config)
	withToken.BearerToken = answer.Status.Token
	return clientOf(t, withToken)
}

// allowed returns those of the accesses that the client has, each as VERB RESOURCE/SUBRESOURCE NAME.
func allowed(t *testing.T, of kubernetes.Interface, accesses ...authorizationv1.ResourceAttributes) (all []string) {
	t.Helper()
	for _, access := range accesses {
		review, err := of.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &access}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			all = append(all, strings.TrimSpace(access.Verb+" "+access.Resource+"/"+access.Subresource+" "+access.Name))
		}
	}
	return all
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
