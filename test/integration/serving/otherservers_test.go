//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/authority"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

// TestRulesOfOtherServers: the rules of TestRuleForms give the same values of gauges from each server
// that people have. Values of rates differ, and are printed.
func TestRulesOfOtherServers(t *testing.T) {
	workload := meter.New()
	if err := workload.Set(exposed); err != nil {
		t.Fatal(err)
	}
	target := httptest.NewServer(workload)
	defer target.Close()
	scrape := prometheus.Scrape(target.URL)
	server := prometheus.Start(t, strings.Replace(scrape, "{scrape", "{external_labels: {cluster: test}, scrape", 1), "--enable-feature=native-histograms")
	victoria := prometheus.StartVictoriaMetrics(t, scrape)
	_, store := prometheus.StartThanosSidecar(t, server)
	thanos := prometheus.StartThanosQuery(t, "--endpoint="+store)
	for _, each := range []*prometheus.Server{server, victoria, thanos} {
		each.WaitFor(t, `rate(checkout_requests_total[20s]) > 10`)
	}

	ca, err := authority.New("gateways")
	if err != nil {
		t.Fatal(err)
	}
	client, err := ca.Issue("serving", nil)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "other-servers"
	if err := grantSecret(t.Context(), cluster.client, secret); err != nil {
		t.Fatal(err)
	}
	_, err = cluster.client.CoreV1().Secrets(servingNamespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secret},
		Data: map[string][]byte{
			"username": []byte("user"), "password": []byte("password"), "token": []byte("token"),
			"ca.crt": ca.PEM, corev1.TLSCertKey: client.Certificate, corev1.TLSPrivateKeyKey: client.Key,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.delete(t, "secrets", servingNamespace, secret) })
	reference := v1alpha1.SecretReference{Name: secret}
	key := func(key string) *v1alpha1.SecretKeyReference {
		return &v1alpha1.SecretKeyReference{SecretReference: reference, Key: key}
	}
	authorization := func(want string) func(http.ResponseWriter, *http.Request) bool {
		return requires("no", func(r *http.Request) bool { return r.Header.Get("Authorization") == want })
	}
	for name, source := range map[string]v1alpha1.PrometheusSource{
		"with-native-histograms": {URL: server.URL},
		"victoria-metrics":       {URL: victoria.URL},
		"thanos-query":           {URL: thanos.URL},
		"behind-basic": {
			URL:            startGateway(t, server.URL, authorization("Basic dXNlcjpwYXNzd29yZA=="), nil).URL,
			Authentication: v1alpha1.SourceAuthentication{Basic: &reference},
		},
		"behind-bearer": {
			URL:            startGateway(t, server.URL, authorization("Bearer token"), nil).URL,
			Authentication: v1alpha1.SourceAuthentication{BearerToken: key("token")},
		},
		"behind-client-certificates": {
			URL: startGateway(t, server.URL, nil, ca).URL,
			TLS: v1alpha1.SourceTLS{CA: key("ca.crt"), ClientCertificate: &reference},
		},
		"of-a-tenant": {
			URL:     startGateway(t, "http://127.0.0.1:1", tenants(t, map[string]string{"team": server.URL}), nil).URL,
			Headers: []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "team"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var backend v1alpha1.MetricsBackend
			if err := yaml.UnmarshalStrict(importRules(t, source.URL), &backend); err != nil {
				t.Fatal(err)
			}
			into := backend.Spec.Sources[0].Prometheus
			into.TLS, into.Authentication, into.Headers = source.TLS, source.Authentication, source.Headers
			content, err := yaml.Marshal(&backend)
			if err != nil {
				t.Fatal(err)
			}
			p, token := serveRules(t, name, content)

			_, body, err := p.get(t.Context(), "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/cart-1/checkout_requests_per_second", token)
			var list struct {
				Items []struct{ Value resource.Quantity }
			}
			if err == nil {
				err = json.Unmarshal([]byte(body), &list)
			}
			if err != nil || len(list.Items) != 1 {
				t.Fatalf("the rate: %v: %s", err, body)
			}
			rate := list.Items[0].Value.AsApproximateFloat64()
			t.Logf("the rate of a counter that grows by 20 a second: %g", rate)
			if rate < 18 || rate > 22 {
				t.Errorf("the rate is %g, want about 20", rate)
			}
		})
	}
}
