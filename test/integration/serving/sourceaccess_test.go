//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

// accessedSources are sources of which each is reached in another way. Each has an external metric
// of its name, with the length of a queue.
type accessedSources struct {
	t     *testing.T
	file  string
	spec  v1alpha1.MetricsBackendSpec
	p     *process
	token string
}

// startAccessed starts serving with sources.
func startAccessed(t *testing.T, account string, sources ...v1alpha1.SourceSpec) *accessedSources {
	t.Helper()
	second := &metav1.Duration{Duration: time.Second}
	a := &accessedSources{t: t, token: administrator(t, account), spec: v1alpha1.MetricsBackendSpec{ExternalMetrics: &v1alpha1.ExternalMetricsSpec{}}}
	for _, source := range sources {
		source.Prometheus.Interval, source.Prometheus.SeriesInterval = second, &metav1.Duration{Duration: 5 * time.Second}
		a.spec.Sources = append(a.spec.Sources, source)
		a.spec.ExternalMetrics.Rules = append(a.spec.ExternalMetrics.Rules, v1alpha1.MetricRule{
			Source: source.Name, SeriesQuery: "queue_length", Name: v1alpha1.RuleName{As: source.Name},
			Resources: v1alpha1.RuleResources{Namespaced: new(bool)}, MetricsQuery: `sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)`,
		})
	}
	folder := t.TempDir()
	a.file = a.write(folder)
	a.p = cluster.startServing(t, account, "--backend-file="+a.file, "--service-namespace="+servingNamespace, "--service-name="+account)
	return a
}

// administrator returns a token of a new account that may do everything.
func administrator(t *testing.T, account string) string {
	t.Helper()
	_, err := cluster.client.CoreV1().ServiceAccounts(servingNamespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindCluster(t.Context(), cluster.client, account, "cluster-admin"); err != nil {
		t.Fatal(err)
	}
	return cluster.token(t, account)
}

func (a *accessedSources) write(folder string) string {
	a.t.Helper()
	content, err := yaml.Marshal(&v1alpha1.MetricsBackend{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MetricsBackend"},
		ObjectMeta: metav1.ObjectMeta{Name: "access"}, Spec: a.spec,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return cluster.writeFile(a.t, folder, "backend.yaml", content)
}

// source returns a source of the spec.
func (a *accessedSources) source(name string) *v1alpha1.PrometheusSource {
	i := slices.IndexFunc(a.spec.Sources, func(s v1alpha1.SourceSpec) bool { return s.Name == name })
	return a.spec.Sources[i].Prometheus
}

// edit changes a source in the file that serving follows.
func (a *accessedSources) edit(name string, change func(*v1alpha1.PrometheusSource)) {
	a.t.Helper()
	change(a.source(name))
	a.write(strings.TrimSuffix(a.file, "/backend.yaml"))
}

const externalMetrics = "/apis/external.metrics.k8s.io/v1beta1"

// unescaped shows what JSON escapes in texts.
var unescaped = strings.NewReplacer(`\"`, `"`, `\u003c`, "<", `\u003e`, ">")

// eventually waits until a path is answered with a status and texts.
func (a *accessedSources) eventually(what, path string, code int, wants ...string) {
	a.t.Helper()
	outcome.Eventually(a.t, 40*time.Second, what, func(ctx context.Context) error {
		got, body, err := a.p.get(ctx, path, a.token)
		if err != nil {
			return err
		}
		body = unescaped.Replace(body)
		for _, want := range wants {
			if got != code || !strings.Contains(body, want) {
				return fmt.Errorf("status %d, want %d with %s: %.1000s", got, code, want, body)
			}
		}
		return nil
	})
}

func (a *accessedSources) hasValue(name, quantity string) {
	a.t.Helper()
	a.eventually("the source "+name+" has its value", externalMetrics+"/namespaces/default/"+name, http.StatusOK, fmt.Sprintf(`"value":%q`, quantity))
}

// fails waits until clients, the explanation of the metric and the report to the operator have the
// reason and the message. The metric stays in discovery.
func (a *accessedSources) fails(name, reason, message string) {
	a.t.Helper()
	path := externalMetrics + "/namespaces/default/" + name
	a.eventually(name+" fails", path, http.StatusServiceUnavailable, fmt.Sprintf("source %q: %s: ", name, reason), message)
	a.eventually(name+" is explained", path+"?explain=true", http.StatusOK, fmt.Sprintf(`"reason": %q`, reason), message)
	outcome.Eventually(a.t, 40*time.Second, name+" is reported", func(ctx context.Context) error {
		report, err := readReport[v1alpha1.SourceReport](ctx, a.p, v1alpha1.SourcesPath, a.token)
		if err != nil {
			return err
		}
		for _, s := range report.Sources {
			if s.Name == name && !s.Healthy && s.Reason == reason && strings.Contains(s.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("%+v", report.Sources)
	})
	a.eventually(name+" is in discovery", externalMetrics, http.StatusOK, fmt.Sprintf(`"name":%q`, name))
}

// TestSourceAccess: sources behind proxies that want basic authentication, a bearer token, a client
// certificate or a tenant. What is wrong with each is named to clients and operator, credentials
// are not, and the values are back once it is right.
func TestSourceAccess(t *testing.T) {
	beside(t)
	// The series of two tenants, and of those that do not exist.
	servers := map[string]string{}
	for tenant, lines := range map[string]string{"team-a": `queue_length{queue="a"} 17`, "team-b": `queue_length{queue="a"} 23`, "nobody": "other 1"} {
		workload := meter.New()
		if err := workload.Set(lines); err != nil {
			t.Fatal(err)
		}
		target := httptest.NewServer(workload)
		t.Cleanup(target.Close)
		server := prometheus.Start(t, prometheus.Scrape(target.URL))
		server.WaitFor(t, "up")
		servers[tenant] = server.URL
	}
	const user, password, token = "scraper-of-metrics", "correct-horse-battery", "staple-token-1234"
	secret := newGatewaySecret(t, "source-access", user, password, token)

	basic := startGateway(t, servers["team-a"], requires("basic", func(r *http.Request) bool {
		u, p, _ := r.BasicAuth()
		return u == user && p == password
	}), nil)
	bearer := startGateway(t, servers["team-a"], requires("bearer", func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token }), nil)
	certificate := startGateway(t, servers["team-a"], nil, secret.authority)
	tenant := startGateway(t, servers["nobody"], tenants(t, servers), nil)
	open := startGateway(t, servers["team-a"], nil, nil)

	a := startAccessed(t, "source-access",
		v1alpha1.SourceSpec{Name: "basic", Prometheus: &v1alpha1.PrometheusSource{URL: basic.URL, Authentication: secret.basic()}},
		v1alpha1.SourceSpec{Name: "bearer", Prometheus: &v1alpha1.PrometheusSource{URL: bearer.URL, Authentication: secret.bearer()}},
		v1alpha1.SourceSpec{Name: "certificate", Prometheus: &v1alpha1.PrometheusSource{URL: certificate.URL, TLS: secret.tls()}},
		v1alpha1.SourceSpec{Name: "tenant-a", Prometheus: &v1alpha1.PrometheusSource{URL: tenant.URL, Headers: []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "team-a"}}}},
		v1alpha1.SourceSpec{Name: "tenant-b", Prometheus: &v1alpha1.PrometheusSource{URL: tenant.URL, Headers: []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "team-b"}}}},
		v1alpha1.SourceSpec{Name: "open", Prometheus: &v1alpha1.PrometheusSource{URL: open.URL}},
	)
	values := map[string]string{"basic": "17", "bearer": "17", "certificate": "17", "tenant-a": "17", "tenant-b": "23", "open": "17"}
	for name, value := range values {
		a.hasValue(name, value)
	}

	// All at once, as each takes the seconds of an interval.
	wrong := func(*http.Request) bool { return false }
	undo := []func(){
		basic.answers(requires("who is "+user+" with "+password+"?", wrong)),
		bearer.answers(always(http.StatusForbidden, "application/json", `{"message":"`+token+` may not read this"}`)),
		open.answers(always(http.StatusOK, "text/html; charset=utf-8", "<!doctype html><html><head><title>Sign in</title></head></html>")),
	}
	clientCertificate := a.source("certificate").TLS.ClientCertificate
	a.source("certificate").TLS.ClientCertificate = nil
	a.edit("tenant-a", func(p *v1alpha1.PrometheusSource) { p.Headers = nil })
	a.fails("basic", "Unauthorized", "HTTP 401: who is <redacted> with <redacted>? (check authentication and headers of the source)")
	a.fails("bearer", "Unauthorized", "HTTP 403: <redacted> may not read this (check authentication and headers of the source)")
	a.fails("certificate", "ConnectionFailed", "the server refused the TLS connection (does it want a client certificate?)")
	a.fails("tenant-a", "Unauthorized", "HTTP 401: no org id (check authentication and headers of the source)")
	a.fails("open", "Malformed", "no login page stands before the server: Sign in")
	a.hasValue("tenant-b", "23")
	open.answers(always(http.StatusBadGateway, "text/html", "<html><h1>502 Bad Gateway</h1></html>"))
	a.fails("open", "BadStatus", "HTTP 502: 502 Bad Gateway")

	// A tenant that does not exist has no series, which is no failure of the source.
	a.edit("tenant-a", func(p *v1alpha1.PrometheusSource) {
		p.Headers = []v1alpha1.SourceHeader{{Name: "X-Scope-OrgID", Value: "team-aa"}}
	})
	outcome.Eventually(t, 40*time.Second, "the rule names the header of the tenant", func(ctx context.Context) error {
		report, err := readReport[v1alpha1.SourceReport](ctx, a.p, v1alpha1.SourcesPath, a.token)
		if err != nil {
			return err
		}
		for _, r := range report.Rules {
			if r.Path == "spec.externalMetrics.rules[3]" && r.Reason == "NoSeries" && strings.Contains(r.Message, "X-Scope-OrgID") {
				return nil
			}
		}
		return fmt.Errorf("%+v", report.Rules)
	})

	for _, f := range undo {
		f()
	}
	a.source("certificate").TLS.ClientCertificate = clientCertificate
	a.edit("tenant-a", func(p *v1alpha1.PrometheusSource) { p.Headers[0].Value = "team-a" })
	for name, value := range values {
		a.hasValue(name, value)
	}
	for _, hidden := range []string{user, password, token} {
		if strings.Contains(a.p.log.String(), hidden) {
			t.Errorf("the log holds the credential %q", hidden)
		}
	}
}
