//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// What a compromised kubelet can do with the token that it is sent: read metrics of kubelets, and nothing else.
func TestKubeletReceivesTokenOfScrapeAccount(t *testing.T) {
	beside(t)
	const test = "scrape-token"
	kubelet := cluster.startNode(t, "node-"+test, map[string]string{nodesOf: test})
	startScraping(t, test, servingNamespace+"/"+scrapeAccount)
	token := waitBearer(t, kubelet)
	config := rest.AnonymousClientConfig(cluster.config)
	config.BearerToken = token
	stolen, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	got := map[string]bool{}
	for name, attributes := range map[string]authorizationv1.ResourceAttributes{
		"get nodes/metrics":          {Verb: "get", Resource: "nodes", Subresource: "metrics"},
		"get nodes/stats":            {Verb: "get", Resource: "nodes", Subresource: "stats"},
		"get nodes/proxy":            {Verb: "get", Resource: "nodes", Subresource: "proxy"},
		"create nodes/proxy":         {Verb: "create", Resource: "nodes", Subresource: "proxy"},
		"list nodes":                 {Verb: "list", Resource: "nodes"},
		"list pods":                  {Verb: "list", Resource: "pods"},
		"get secret of a source":     {Verb: "get", Resource: "secrets", Namespace: servingNamespace, Name: "prometheus"},
		"create tokenreviews":        {Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"},
		"create access reviews":      {Verb: "create", Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
		"create serving's token":     {Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: servingNamespace, Name: servingAccount},
		"create tokens of itself":    {Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: servingNamespace, Name: scrapeAccount},
		"read pods' resource usage":  {Verb: "list", Group: "metrics.k8s.io", Resource: "pods"},
		"read the MetricsBackends":   {Verb: "list", Group: "metricsbackend.io", Resource: "metricsbackends"},
		"list endpoints of services": {Verb: "list", Group: "discovery.k8s.io", Resource: "endpointslices", Namespace: servingNamespace},
	} {
		review, err := stolen.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if review.Status.Allowed {
			got[name] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"get nodes/metrics": true}, got); diff != "" {
		t.Errorf("what the token allows (-want +got):\n%s", diff)
	}

	_, readSecret := stolen.CoreV1().Secrets(servingNamespace).Get(t.Context(), "prometheus", metav1.GetOptions{})
	_, reviewToken := stolen.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	for name, err := range map[string]error{"read the Secret of a source": readSecret, "review a token": reviewToken} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want Forbidden", name, err)
		}
	}
}

// A pod that may not request the token says so, is not ready, and sends kubelets nothing: its own token neither. It
// needs no restart once it may.
func TestScrapeTokenForbidden(t *testing.T) {
	beside(t)
	const test, account = "scrape-forbidden", "scrape-later"
	if _, err := cluster.client.CoreV1().ServiceAccounts(servingNamespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubelet := cluster.startNode(t, "node-"+test, map[string]string{nodesOf: test})
	p := startScraping(t, test, servingNamespace+"/"+account)
	reader := cluster.token(t, "reader")

	const reason = "cannot get a token of ServiceAccount metrics-backend/scrape-later, and no other is sent"
	outcome.Eventually(t, time.Minute, "readiness, log and report name the reason", func(context.Context) error {
		status, body, err := p.get(t.Context(), "/readyz/scrape-token", reader)
		if err != nil || status != http.StatusInternalServerError || !strings.Contains(body, reason) {
			return fmt.Errorf("readiness: status %d: %s, %w", status, body, err)
		}
		if err := p.logged(reason); err != nil {
			return err
		}
		report, err := readReport[v1alpha1.SourceReport](t.Context(), p, v1alpha1.SourcesPath, reader)
		if err != nil {
			return err
		}
		if f := report.Kubelets.Failures; len(f) != 1 || f[0].Reason != v1alpha1.ScrapeNoToken || !strings.Contains(f[0].Message, reason) {
			return fmt.Errorf("the report has %+v", report.Kubelets)
		}
		return nil
	})
	if n := kubelet.requests(time.Time{}); n > 0 {
		t.Errorf("the kubelet was sent %d requests", n)
	}

	if err := grantToken(t.Context(), cluster.client, account); err != nil {
		t.Fatal(err)
	}
	p.waitReady(t)
	checkBearer(t, kubelet, account)
}

// startScraping starts serving for the nodes of a test, with the account whose token they get.
func startScraping(t *testing.T, test, account string) *process {
	t.Helper()
	return cluster.startServingFor(t, test, cluster.writeKubeconfig(t, t.TempDir(), servingAccount), account,
		"--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml", []byte(fastScrapes(test))))
}

// waitBearer waits until the kubelet is sent a token, and returns it.
func waitBearer(t *testing.T, kubelet *fakeKubelet) (token string) {
	t.Helper()
	outcome.Eventually(t, time.Minute, "the kubelet is sent a token", func(context.Context) error {
		if token = kubelet.token(); token == "" {
			return errors.New("no request with a token")
		}
		return nil
	})
	return token
}

// checkBearer checks whose token the kubelet is sent.
func checkBearer(t *testing.T, kubelet *fakeKubelet, account string) {
	t.Helper()
	review, err := cluster.client.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: waitBearer(t, kubelet)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "system:serviceaccount:" + servingNamespace + ":" + account; review.Status.User.Username != want {
		t.Errorf("the token is of %q, want %s", review.Status.User.Username, want)
	}
}
