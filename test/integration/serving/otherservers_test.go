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

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
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

	secret := newGatewaySecret(t, "other-servers", "user", "password", "token")
	authorization := func(want string) func(http.ResponseWriter, *http.Request) bool {
		return requires("no", func(r *http.Request) bool { return r.Header.Get("Authorization") == want })
	}
	for name, source := range map[string]v1alpha1.PrometheusSource{
		"with-native-histograms": {URL: server.URL},
		"victoria-metrics":       {URL: victoria.URL},
		"thanos-query":           {URL: thanos.URL},
		"behind-basic": {
			URL:            startGateway(t, server.URL, authorization("Basic dXNlcjpwYXNzd29yZA=="), nil).URL,
			Authentication: secret.basic(),
		},
		"behind-bearer": {
			URL:            startGateway(t, server.URL, authorization("Bearer token"), nil).URL,
			Authentication: secret.bearer(),
		},
		"behind-client-certificates": {
			URL: startGateway(t, server.URL, nil, secret.authority).URL,
			TLS: secret.tls(),
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
