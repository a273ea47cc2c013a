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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	// fleetMetrics is how many metrics the fleet has, and fleetAutoscalers how many
	// autoscalers ask for them once an interval, the stock controller's own.
	fleetMetrics     = 100
	fleetAutoscalers = 1000
	fleetInterval    = 15 * time.Second
	fleetIntervals   = 6
)

// fleetSelectors select other pods each, whose values one query gives.
var fleetSelectors = []string{"app=truck", "load=heavy", "load+in+(light)", ""}

// setFleet gives the pods of the fleet their metrics.
func setFleet(t *testing.T) {
	t.Helper()
	var lines strings.Builder
	for i := range fleetMetrics {
		fmt.Fprintf(&lines, "fleet_load_%d %d\n", i, i)
	}
	pods := setMetrics(t, fleet, "app=truck", lines.String())
	for i := range pods {
		kubectl(t, "-n", fleet, "label", "--overwrite", "pod/"+pods[i].Name, "load="+[]string{"heavy", "light"}[i%2])
	}
}

// setMetrics gives the selected pods these metrics instead of those that they have, and returns the pods.
func setMetrics(t *testing.T, namespace, selector, lines string) []corev1.Pod {
	t.Helper()
	pods, err := suite.core.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		outcome.Eventually(t, time.Minute, "set the metrics of "+pod.Name, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+pod.Status.PodIP+":8080/metrics", strings.NewReader(lines))
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
	return pods.Items
}

// editRule: an edited rule is in force on each pod, and no pod restarts for it.
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
	outcome.Eventually(t, time.Minute, "each pod serves the edited rule, and none the old one", func(ctx context.Context) error {
		return eachPod(ctx, func(client rest.Interface) error {
			if err := readValue(ctx, client, after); err != nil {
				return err
			}
			if body, err := client.Get().RequestURI(before).DoRaw(ctx); err == nil {
				return fmt.Errorf("the old one is served: %s", body)
			}
			return nil
		})
	})
	outcome.Measure(t, "an edited rule is in force on each pod", time.Since(edited), 10*time.Second)
	if got := startsOfPods(t); got != pods {
		outcome.Unsafe(t, "pods were replaced or restarted:\n%s\nnow:\n%s", pods, got)
	}
}

// shareQueries asks what a thousand autoscalers ask, and counts what that costs
// Prometheus, by its own figures. How long answers take it prints: beside the other
// tests on one machine that says nothing to judge.
func shareQueries(t *testing.T) {
	path := func(i int) string {
		return fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/namespaces/fleet/pods/*/fleet_load_%d?labelSelector=%s",
			i%fleetMetrics, fleetSelectors[i/fleetMetrics%len(fleetSelectors)])
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
		refused  int
		asking   sync.WaitGroup
		// first and last are the times between which a metric was asked for.
		first, last [fleetMetrics]time.Time
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
				sent := time.Now()
				err := core.RESTClient().Get().RequestURI(path(i)).MaxRetries(0).Do(t.Context()).Error()
				mu.Lock()
				took = append(took, time.Since(sent))
				if m := i % fleetMetrics; first[m].IsZero() || sent.Before(first[m]) {
					first[m] = sent
				}
				if m := i % fleetMetrics; time.Now().After(last[m]) {
					last[m] = time.Now()
				}
				switch {
				case err == nil:
				case strings.Contains(err.Error(), "Overloaded: "):
					refused++ // Prometheus, or the machine, is too slow at the moment
				default:
					failures = append(failures, err.Error())
				}
				mu.Unlock()
				timer.Reset(time.Until(sent.Add(fleetInterval)))
			}
		})
	}
	asking.Wait()
	lasted := time.Since(began)
	queries := backendQueries(t) - counted
	if len(failures) > 0 {
		outcome.Unsafe(t, "%d of %d requests failed, such as: %s", len(failures), len(took), failures[0])
	}
	outcome.Measure(t, "share of requests that were refused, as too many waited", float64(refused)/float64(len(took)), 0.1)
	// Each pod evaluates a question once in each interval in which it is asked. Those of
	// a question begin at a moment of its own, so the time of its requests touches one or
	// two more than fit into it.
	least, most := 0, 0
	for m := range fleetMetrics {
		whole := int(last[m].Sub(first[m]) / fleetInterval)
		least, most = least+whole+1, most+pods*(whole+2)
	}
	if queries < float64(least) || queries > float64(most) {
		outcome.Unsafe(t, "%.0f backend queries in %s, want %d to %d", queries, lasted.Round(time.Second), least, most)
	}
	slices.Sort(took)
	t.Logf("%d requests for %d metrics in %s: %.0f backend queries, %.0f an interval and serving pod; p50 %s, p99 %s; %d refused",
		len(took), fleetMetrics, lasted.Round(time.Second), queries, queries/float64(pods)/(lasted.Seconds()/fleetInterval.Seconds()),
		took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond), refused)
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
