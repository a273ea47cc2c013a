//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// adapter is another implementation, which has kube-apiserver check the tokens that it gets.
type adapter struct {
	port int32

	mu sync.Mutex
	// seen has the user and the path of each request for values.
	seen map[string]bool
}

func startAdapter(t *testing.T, service string) *adapter {
	t.Helper()
	a := &adapter{seen: map[string]bool{}}
	certFile, keyFile := issueFiles(t, cluster.servingCA, t.TempDir(), service+"."+servingNamespace+".svc")
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	n, _ := strconv.Atoi(port)
	a.port = int32(n)
	return a
}

const adapterGroup = "/apis/external.metrics.k8s.io/v1beta1"

func (a *adapter) serve(w http.ResponseWriter, r *http.Request) {
	review, err := cluster.client.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")},
	}, metav1.CreateOptions{})
	w.Header().Set("Content-Type", "application/json")
	if err != nil || !review.Status.Authenticated {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.URL.Path == adapterGroup {
		_, _ = io.WriteString(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "external.metrics.k8s.io/v1beta1", "resources": [{"name": "externalmetrics", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": ["get"]}]}`)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, adapterGroup)
	a.mu.Lock()
	a.seen[review.Status.User.Username+" "+r.Method+" "+path+" "+r.URL.Query().Get("labelSelector")] = true
	a.mu.Unlock()
	switch metric := path[strings.LastIndex(path, "/")+1:]; metric {
	case `s0-rabbitmq`, `cloud\|queue`:
		w.Header().Set("Warning", `299 - "the queue is nearly full"`)
		_, _ = fmt.Fprintf(w, `{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}, "items": [
			{"metricName": %q, "metricLabels": {"b": "2"}, "timestamp": "2024-01-02T03:04:05Z", "window": 60, "value": "12345678901234567890"},
			{"metricName": %[1]q, "metricLabels": null, "timestamp": "2024-01-02T03:04:05Z", "value": "1n"}]}`, metric)
	default:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "scaledObject name is not specified", "reason": "InternalError", "code": 500}`)
	}
}

// Values and errors of another implementation come through kube-apiserver as it answers them, by a route. It gets the
// token of an account that can do nothing else. A MetricsBackend refuses what is passed on to it.
func TestOtherImplementation(t *testing.T) {
	beside(t)
	const name, other = "metrics-serving-routes", "keda-metrics-apiserver"
	a := startAdapter(t, other)
	for _, service := range []string{other, name} {
		if _, err := cluster.client.CoreV1().Services(servingNamespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: service}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cluster.delete(t, "services", servingNamespace, service) })
	}
	// What the operator creates.
	account, autoscaler := name+v1alpha1.MetricsAPIAccountSuffix, name+"-autoscaler"
	for _, name := range []string{account, autoscaler} {
		if _, err := cluster.client.CoreV1().ServiceAccounts(servingNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := grantToken(t.Context(), cluster.client, account); err != nil {
		t.Fatal(err)
	}
	if err := grantCluster(t.Context(), cluster.client, servingAccount, "addresses",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{other, name}, Verbs: []string{"get"}}); err != nil {
		t.Fatal(err)
	}
	ca := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "keda-ca"}, Data: map[string][]byte{"ca.crt": cluster.servingCA.PEM}}
	if _, err := cluster.client.CoreV1().Secrets(servingNamespace).Create(t.Context(), ca, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.delete(t, "secrets", servingNamespace, ca.Name) })
	if err := grantSecret(t.Context(), cluster.client, ca.Name); err != nil {
		t.Fatal(err)
	}

	p := cluster.startServing(t, name, "--backend=routes", "--service-namespace="+servingNamespace, "--service-name="+name)
	source := func(of, service string, port int32) v1alpha1.SourceSpec {
		return v1alpha1.SourceSpec{Name: of, Optional: true, MetricsAPI: &v1alpha1.MetricsAPISource{
			Service: v1alpha1.ExistingService{Namespace: servingNamespace, Name: service, Port: &port}, Group: v1alpha1.ExternalMetricsGroup,
			TLS: v1alpha1.SourceTLS{CASecretKeyRef: &v1alpha1.SecretKeyReference{SecretReference: v1alpha1.SecretReference{Name: ca.Name}, Key: "ca.crt"}},
		}}
	}
	create(t, newBackendClient(t), &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: "routes"}, Spec: v1alpha1.MetricsBackendSpec{
		Sources: []v1alpha1.SourceSpec{source("keda", other, a.port), source("self", name, p.port)},
		ExternalMetrics: &v1alpha1.ExternalMetricsSpec{Routes: []v1alpha1.MetricRoute{
			{Source: "self", Match: v1alpha1.RouteMatch{Metrics: []string{"round"}}},
			{Source: "keda"},
		}},
	}})
	p.waitReady(t)
	reader := cluster.token(t, "reader")
	outcome.Eventually(t, time.Minute, "one answers and the other leads back", func(ctx context.Context) error {
		got, err := readReport[v1alpha1.SourceReport](ctx, p, v1alpha1.SourcesPath, reader)
		if err != nil {
			return err
		}
		for _, s := range got.Sources {
			if s.Name == "keda" && !s.Healthy || s.Name == "self" && s.Reason != "Loop" {
				return fmt.Errorf("sources: %+v", got.Sources)
			}
		}
		return nil
	})

	if err := grantCluster(t.Context(), cluster.client, autoscaler, autoscaler,
		rbacv1.PolicyRule{APIGroups: []string{"external.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}); err != nil {
		t.Fatal(err)
	}
	token := cluster.token(t, autoscaler)
	selector := "?labelSelector=" + url.QueryEscape("scaledobject.keda.sh/name=worker,app in (a,b)")
	for path, want := range map[string][]string{
		"/namespaces/shop/s0-rabbitmq" + selector:                  {`"value":"12345678901234567890"`, `"window":60`, `"metricLabels":{"b":"2"}`, `"value":"1n"`, `"timestamp":"2024-01-02T03:04:05Z"`},
		`/namespaces/shop/cloud%5C%7Cqueue`:                        {`"metricName":"cloud\\|queue"`},
		"/namespaces/shop/s0-rabbitmq?watch=true&timeoutSeconds=2": {`"12345678901234567890"`, `"1n"`},
		"/namespaces/shop/none":                                    {`"message":"scaledObject name is not specified"`, `"code":500`, `"reason":"InternalError"`},
		"/namespaces/shop/round":                                   {`"code":503`, `source \"self\": Loop`, v1alpha1.LeadsBack},
		"/namespaces/shop/round?explain=true":                      {`"origin": "spec.externalMetrics.routes[0]"`, `"reason": "Loop"`, `spec.externalMetrics.routes[1] leads this metric to the source \"keda\", too, but comes after what answers it`},
	} {
		_, body, err := p.get(t.Context(), adapterGroup+path, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(body, part) {
				t.Errorf("%s: %s, want it to have %s", path, body, part)
			}
		}
	}
	user := "system:serviceaccount:" + servingNamespace + ":" + account
	a.mu.Lock()
	defer a.mu.Unlock()
	var seen []string
	for text := range a.seen {
		seen = append(seen, strings.TrimPrefix(text, user))
	}
	slices.Sort(seen)
	want := []string{
		` GET /namespaces/shop/cloud\|queue `,
		" GET /namespaces/shop/none ",
		" GET /namespaces/shop/s0-rabbitmq ",
		" GET /namespaces/shop/s0-rabbitmq app in (a,b),scaledobject.keda.sh/name=worker",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("requests of the account for other implementations (-want +got):\n%s", diff)
	}
}
