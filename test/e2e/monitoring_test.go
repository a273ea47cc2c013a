// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/test/monitoring"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// startPrometheus starts the test's Prometheus, which also scrapes operator, serving and kube-apiserver as the example for
// a Prometheus without prometheus-operator says, with its RBAC, and has the alerts, with a sixtieth of each for. The
// backend must be there: its CA is copied.
func startPrometheus(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = run("kubectl", "delete", "--ignore-not-found", "-f", "config/monitoring/scrape/rbac.yaml")
		_, _ = run("kubectl", "delete", "--ignore-not-found", "--wait=false", "namespace", "monitoring")
		_, _ = run("kubectl", "delete", "--ignore-not-found", "clusterrole/test-prometheus", "clusterrolebinding/test-prometheus")
	})
	manifest, err := os.ReadFile(filepath.Join(suite.root, prometheusManifests, "prometheus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(manifest), "\n---\n")
	for i, document := range documents {
		if strings.Contains(document, "kind: ConfigMap") {
			documents[i] = monitoringConfig(t, document) + "\n---\n" + servingCA(t)
		}
	}
	file := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", file)
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", "config/monitoring/scrape/rbac.yaml")
}

// monitoringConfig adds jobs and rules to Prometheus' ConfigMap.
func monitoringConfig(t *testing.T, document string) string {
	t.Helper()
	var object corev1.ConfigMap
	if err := yaml.Unmarshal([]byte(document), &object); err != nil {
		t.Fatal(err)
	}
	var config, example map[string]any
	if err := yaml.Unmarshal([]byte(object.Data["prometheus.yml"]), &config); err != nil {
		t.Fatal(err)
	}
	service, err := suite.core.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(suite.root, monitoring.Folder, "scrape/prometheus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The cluster has no name server.
	text := strings.ReplaceAll(string(content), "kubernetes.default.svc:443", strconv.Quote(net.JoinHostPort(service.Spec.ClusterIP, "443")))
	if err := yaml.Unmarshal([]byte(text), &example); err != nil {
		t.Fatal(err)
	}
	for _, each := range example["scrape_configs"].([]any) {
		job := each.(map[string]any)
		job["scrape_interval"] = "2s"
		if _, ok := job["kubernetes_sd_configs"]; ok {
			// Debian's Prometheus is built without; the container beside it tells the same.
			delete(job, "kubernetes_sd_configs")
			job["http_sd_configs"] = []any{map[string]any{"url": "http://localhost:8081/pods?namespace=" + namespace, "refresh_interval": "1s"}}
		}
		config["scrape_configs"] = append(config["scrape_configs"].([]any), job)
	}
	config["global"].(map[string]any)["evaluation_interval"] = "1s"
	config["rule_files"] = []any{"/etc/config/rules.yaml"}
	merged, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	object.Data = map[string]string{"prometheus.yml": string(merged), "rules.yaml": shortenedRules(t)}
	out, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// shortenedRules are the rules with a sixtieth of each for, and rates over half a minute or two.
func shortenedRules(t *testing.T) string {
	t.Helper()
	rules, err := monitoring.Rules(suite.root)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for i := range g.Rules {
			rule := &g.Rules[i]
			rule.Expr = strings.NewReplacer("[5m]", "[30s]", "[5m:1m]", "[10s:1s]", "[1h]", "[2m]", "[10m]", "[10s]").Replace(rule.Expr)
			if rule.For != "" {
				long, err := time.ParseDuration(rule.For)
				if err != nil {
					t.Fatal(err)
				}
				rule.For = (long / 60).String()
			}
		}
	}
	out, err := yaml.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// servingCA is the ConfigMap with the copy of serving's CA.
func servingCA(t *testing.T) string {
	t.Helper()
	secret, err := suite.core.CoreV1().Secrets(namespace).Get(t.Context(), "metrics-serving-"+backendName+"-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "metrics-backend-ca"},
		Data:       map[string]string{"ca.crt": string(secret.Data["ca.crt"])},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// noAlertFires: Prometheus has scraped everything, has evaluated each rule without an error, and no alert is firing or
// about to.
func noAlertFires(t *testing.T) {
	t.Helper()
	address, began := prometheusURL(t, "prometheus"), time.Now()
	rules, err := monitoring.Rules(suite.root)
	if err != nil {
		t.Fatal(err)
	}
	outcome.Eventually(t, 2*time.Minute, "all is scraped, each rule is evaluated, and no alert is pending or firing", func(ctx context.Context) error {
		for job, want := range map[string]int{"metrics-backend-operator": 1, "metrics-serving-cluster": 2, "kube-apiserver-aggregator": 1} {
			up, err := queryPrometheus(ctx, address, fmt.Sprintf("up{job=%q} == 1", job))
			if err != nil {
				return err
			}
			if len(up) != want {
				return fmt.Errorf("%d targets of %s are up, want %d: %s", len(up), job, want, scrapeErrors(ctx, address))
			}
		}
		states, err := alertStates(ctx, address)
		if err != nil {
			return err
		}
		if n := len(rules.All()); states.evaluated != n {
			return fmt.Errorf("%d rules of %d are evaluated", states.evaluated, n)
		}
		if active := append(states.named("pending"), states.named("firing")...); len(active) > 0 {
			return fmt.Errorf("pending or firing: %v", active)
		}
		return nil
	})
	t.Logf("no alert is pending or firing, after %s", time.Since(began).Round(time.Second))
}

// alertsFire waits until exactly these alerts are firing.
func alertsFire(t *testing.T, want ...string) {
	t.Helper()
	address := prometheusURL(t, "prometheus")
	slices.Sort(want)
	outcome.Eventually(t, 2*time.Minute, fmt.Sprintf("exactly %v fire", want), func(ctx context.Context) error {
		states, err := alertStates(ctx, address)
		if err != nil {
			return err
		}
		if got := states.named("firing"); !slices.Equal(got, want) {
			return fmt.Errorf("firing are %v", got)
		}
		for _, text := range states.texts {
			if strings.Contains(text, "<error") || strings.Contains(text, "{{") || strings.Contains(text, "<no value>") {
				return fmt.Errorf("an annotation is broken: %s", text)
			}
		}
		return nil
	})
}

// ruleStates has the state of each alert with its number of instances in that state.
type ruleStates struct {
	evaluated int
	state     map[string]string
	texts     []string
}

func (s *ruleStates) named(state string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s.state)) {
		if s.state[name] == state {
			all = append(all, name)
		}
	}
	return all
}

// alertStates reads /api/v1/rules, and returns an error for a rule that cannot be evaluated.
func alertStates(ctx context.Context, address string) (*ruleStates, error) {
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, Health, LastError, State string
					LastEvaluation                 time.Time
					Alerts                         []struct{ Annotations map[string]string }
				}
			}
		}
	}
	if err := getJSON(ctx, http.DefaultClient, "application/json", address+"/api/v1/rules", &answer); err != nil {
		return nil, err
	}
	states := &ruleStates{state: map[string]string{}}
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if r.LastError != "" || r.Health == "err" {
				return nil, fmt.Errorf("rule %s: %s", r.Name, r.LastError)
			}
			if r.Health == "ok" {
				states.evaluated++
			}
			if r.State != "" {
				states.state[r.Name] = r.State
			}
			for _, a := range r.Alerts {
				states.texts = slices.AppendSeq(states.texts, maps.Values(a.Annotations))
			}
		}
	}
	return states, nil
}

// scrapeErrors tells of the targets that are down.
func scrapeErrors(ctx context.Context, address string) string {
	var answer struct {
		Data struct {
			ActiveTargets []struct{ ScrapeURL, LastError string }
		}
	}
	if err := getJSON(ctx, http.DefaultClient, "application/json", address+"/api/v1/targets?state=active", &answer); err != nil {
		return err.Error()
	}
	out := ""
	for _, target := range answer.Data.ActiveTargets {
		if target.LastError != "" {
			out += target.ScrapeURL + ": " + target.LastError + "; "
		}
	}
	return out
}

// queryPrometheus returns the result of an instant query.
func queryPrometheus(ctx context.Context, address, expr string) ([]json.RawMessage, error) {
	var answer struct {
		Data struct {
			Result []json.RawMessage
		}
	}
	err := getJSON(ctx, http.DefaultClient, "application/json", address+"/api/v1/query?query="+url.QueryEscape(expr), &answer)
	return answer.Data.Result, err
}

// getJSON decodes the answer of a GET request that accepts a media type.
func getJSON(ctx context.Context, client *http.Client, accept, address string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", accept)
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", answer.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %.100q: %w", body, err)
	}
	return nil
}
