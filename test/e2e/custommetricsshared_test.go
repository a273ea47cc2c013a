// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// fleetMetrics is how many metrics the fleet has, and fleetAutoscalers how many
	// autoscalers ask for them once an interval, the stock controller's own.
	fleetMetrics     = 100
	fleetAutoscalers = 1000
	fleetInterval    = 15 * time.Second
	fleetIntervals   = 4
)

// setFleet gives the pods of the fleet their metrics.
func setFleet(t *testing.T) {
	t.Helper()
	var lines strings.Builder
	for i := range fleetMetrics {
		fmt.Fprintf(&lines, "fleet_load_%d %d\n", i, i)
	}
	pods, err := suite.core.CoreV1().Pods(fleet).List(t.Context(), metav1.ListOptions{LabelSelector: "app=truck"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		eventually(t, time.Minute, "set the metrics of "+pod.Name, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+pod.Status.PodIP+":8080/metrics", strings.NewReader(lines.String()))
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s", answer.Status)
			}
			return nil
		})
	}
}

// editRule: an edited rule is in force within seconds, and no pod restarts for it.
func editRule(t *testing.T) {
	const before, after = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/items_before", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/items_after"
	waitForMetric(t, before)
	pods := startsOfPods(t)
	editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) {
		for i := range spec.CustomMetrics.Rules {
			if rule := &spec.CustomMetrics.Rules[i]; rule.Name.As == "items_before" {
				rule.Name.As = "items_after"
			}
		}
	})
	edited := time.Now()
	waitForMetric(t, after)
	took := time.Since(edited)
	// Pods take it up one by one; the last of them counts.
	eventually(t, time.Minute, "no pod serves what was edited away", func(ctx context.Context) error {
		for range 10 {
			if body, err := suite.core.RESTClient().Get().RequestURI(before).DoRaw(ctx); err == nil {
				return fmt.Errorf("it is served: %s", body)
			}
		}
		return nil
	})
	t.Logf("the edited rule was in force after %s", took.Round(10*time.Millisecond))
	if took > 5*time.Second {
		t.Errorf("the edited rule was in force after %s, want 5 s at most", took)
	}
	if got := startsOfPods(t); got != pods {
		t.Errorf("pods were replaced or restarted:\n%s\nnow:\n%s", pods, got)
	}
}

// shareQueries asks what a thousand autoscalers ask, and counts what that costs
// Prometheus, by its own figures.
func shareQueries(t *testing.T) {
	path := func(i int) string {
		return fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/namespaces/fleet/pods/*/fleet_load_%d?labelSelector=app%%3Dtruck", i%fleetMetrics)
	}
	waitForMetric(t, path(0))
	waitForMetric(t, path(fleetMetrics-1))
	config := rest.CopyConfig(suite.config)
	config.QPS = -1
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pods := len(servingPods(t))
	counted := backendQueries(t)
	began := time.Now()
	var (
		mu       sync.Mutex
		took     []time.Duration
		failures []string
		asking   sync.WaitGroup
	)
	// Spread over the interval, as autoscalers of many ages are.
	for i := range fleetAutoscalers {
		asking.Go(func() {
			timer := time.NewTimer(fleetInterval * time.Duration(i) / fleetAutoscalers)
			defer timer.Stop()
			for range fleetIntervals {
				select {
				case <-t.Context().Done():
					return
				case <-timer.C:
				}
				asked := time.Now()
				err := core.RESTClient().Get().RequestURI(path(i)).MaxRetries(0).Do(t.Context()).Error()
				mu.Lock()
				took = append(took, time.Since(asked))
				if err != nil {
					failures = append(failures, err.Error())
				}
				mu.Unlock()
				timer.Reset(time.Until(asked.Add(fleetInterval)))
			}
		})
	}
	asking.Wait()
	lasted := time.Since(began)
	queries := backendQueries(t) - counted
	if len(failures) > 0 {
		t.Errorf("%d of %d requests failed, such as: %s", len(failures), len(took), failures[0])
	}
	// Each pod evaluates a question once an interval at most. The intervals of questions
	// begin at moments of their own, so one more is touched than has passed.
	intervals := int(lasted/fleetInterval) + 2
	if most := float64(pods * fleetMetrics * intervals); queries > most || queries < fleetMetrics {
		t.Errorf("%.0f backend queries in %s, want %d to %.0f", queries, lasted.Round(time.Second), fleetMetrics, most)
	}
	slices.Sort(took)
	t.Logf("%d requests for %d metrics in %s: %.0f backend queries, %.0f an interval and serving pod; p50 %s, p99 %s",
		len(took), fleetMetrics, lasted.Round(time.Second), queries, queries/float64(pods)/(lasted.Seconds()/fleetInterval.Seconds()),
		took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond))
}

// backendQueries is how many queries the counted Prometheus has answered.
func backendQueries(t *testing.T) float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, prometheusURL(t, "prometheus-counted")+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	sum, lines := 0.0, bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		if !strings.HasPrefix(name, "prometheus_http_requests_total{") || !strings.Contains(name, `handler="/api/v1/query"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("read %q: %v", lines.Text(), err)
		}
		sum += n
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	return sum
}
