//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const readerUser = "system:serviceaccount:" + servingNamespace + ":reader"

// as returns how an account asks kube-apiserver with a user agent.
func as(t *testing.T, account, userAgent string) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(cluster.config)
	config.BearerToken = cluster.token(t, account)
	config.UserAgent = userAgent
	return config
}

func (p *process) consumers(t *testing.T) v1alpha1.ConsumerReport {
	t.Helper()
	status, body, err := p.get(t.Context(), v1alpha1.ConsumersPath, cluster.token(t, "reader"))
	if err != nil || status != http.StatusOK {
		t.Fatalf("get %s: status %d, %v: %s", v1alpha1.ConsumersPath, status, err, body)
	}
	var report v1alpha1.ConsumerReport
	if err := json.Unmarshal([]byte(body), &report); err != nil {
		t.Fatalf("decode %s: %v", body, err)
	}
	return report
}

// TestConsumers: who asks for objects through kube-apiserver is reported by the
// names that kube-apiserver passes on, and nobody else is.
func TestConsumers(t *testing.T) {
	p, _ := startAlone(t, "used")
	p.waitReady(t)
	cluster.register(t, "used", p.port, "v1", "v1beta1")
	for _, version := range []string{"v1", "v1beta1"} {
		eventually(t, time.Minute, "APIService of "+version+" becomes available", func() error { return cluster.available(t.Context(), version) })
	}
	const nodes = "/apis/metrics.k8s.io/%s/nodes"
	long := strings.Repeat("x", 10_000)
	ask := func(userAgent, version string, want int) {
		t.Helper()
		config := as(t, "reader", userAgent)
		eventually(t, 20*time.Second, fmt.Sprintf("%.40s asks for %s", userAgent, version), func() error {
			if status := statusThrough(t, config, fmt.Sprintf(nodes, version)); status != want {
				return fmt.Errorf("status %d", status)
			}
			return nil
		})
	}
	ask("kubectl/v1.37.0 (linux/amd64) kubernetes/1234567", "v1", http.StatusOK)
	ask("vpa-recommender/v1.5.0 (linux/amd64)", "v1beta1", http.StatusOK)
	ask("k9s/0.50", "v1", http.StatusOK)
	ask("k9s/0.51", "v1", http.StatusOK)
	ask(long, "v1", http.StatusOK)
	ask("\xff\xfe\u202egnp.exe", "v1", http.StatusOK)

	// These use no version.
	if _, err := discovery.NewDiscoveryClientForConfigOrDie(as(t, "reader", "only-discovery/1")).ServerPreferredResources(); err != nil {
		t.Fatalf("read discovery: %v", err)
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/metrics.k8s.io/v1", "/apis/metrics.k8s.io/v1"} {
		statusThrough(t, as(t, "reader", "only-discovery/2"), path)
	}
	statusThrough(t, as(t, "reader", v1alpha1.OperatorUserAgent+"/v1.0.0"), fmt.Sprintf(nodes, "v1"))
	statusThrough(t, as(t, "reader", "kubectl-metrics/v1.0.0"), fmt.Sprintf(nodes, "v1"))
	if status, _, err := p.get(t.Context(), fmt.Sprintf(nodes, "v1"), cluster.token(t, "nobody")); err != nil || status != http.StatusForbidden {
		t.Fatalf("a request without rights: status %d, %v", status, err)
	}

	var got []string
	for _, c := range p.consumers(t).Consumers {
		if _, err := time.Parse(time.DateOnly, c.LastSeen); err != nil {
			t.Errorf("%+v: no day", c)
		}
		got = append(got, strings.Join([]string{c.Version, c.UserAgent, c.User}, " "))
	}
	want := []string{
		"v1.metrics.k8s.io ???gnp.exe " + readerUser,
		"v1.metrics.k8s.io k9s " + readerUser,
		"v1.metrics.k8s.io kubectl " + readerUser,
		"v1.metrics.k8s.io " + long[:64] + " " + readerUser,
		"v1beta1.metrics.k8s.io vpa-recommender " + readerUser,
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("consumers:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	// A client with ever new names fills a bounded report, and displaces nobody.
	config := as(t, "reader", "")
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const flood = 500
	for i := range flood {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(config.Host, "/")+fmt.Sprintf(nodes, "v1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("User-Agent", fmt.Sprintf("bot-%d/1", i))
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	}
	report := p.consumers(t)
	kept := 0
	for _, c := range report.Consumers {
		if slices.Contains(want, strings.Join([]string{c.Version, c.UserAgent, c.User}, " ")) {
			kept++
		}
	}
	bots := flood + 4 - v1alpha1.MaxConsumers
	if kept != len(want) || len(report.Consumers) != v1alpha1.MaxConsumers+1 || report.Others["v1.metrics.k8s.io"] != bots {
		t.Errorf("after the flood %d consumers, %d of them from before, and %v others; want %d, %d and %d",
			len(report.Consumers), kept, report.Others, v1alpha1.MaxConsumers+1, len(want), bots)
	}
}
