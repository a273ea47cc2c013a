// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// With what the operator grants, serving pods can request the token for kubelets, and no other; that token allows to
// get nodes/metrics, which serving's own account may not, and nothing else.
func TestScrapeAccount(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	const account = "metrics-serving-cluster"
	impersonating := rest.CopyConfig(suite.config)
	impersonating.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + systemNamespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace, "system:authenticated"},
	}
	serving := clientOf(t, impersonating)
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
	withToken := rest.AnonymousClientConfig(suite.config)
	withToken.BearerToken = answer.Status.Token

	got := map[string][]string{}
	for user, client := range map[string]kubernetes.Interface{"serving": serving, "scrape": clientOf(t, withToken)} {
		for _, access := range []authorizationv1.ResourceAttributes{
			{Verb: "get", Resource: "nodes", Subresource: "metrics"},
			{Verb: "get", Resource: "nodes", Subresource: "proxy"},
			{Verb: "get", Resource: "nodes", Subresource: "stats"},
			{Verb: "list", Resource: "nodes"},
			{Verb: "get", Resource: "secrets", Namespace: systemNamespace},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: systemNamespace, Name: account + "-scrape"},
			{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		} {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
				&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &access}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed {
				got[user] = append(got[user], access.Verb+" "+access.Resource+"/"+access.Subresource)
			}
		}
	}
	want := map[string][]string{
		"serving": {"list nodes/", "create serviceaccounts/token", "create tokenreviews/"},
		"scrape":  {"get nodes/metrics"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
