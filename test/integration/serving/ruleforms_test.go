//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
	"github.com/metricsbackend/metrics-backend-operator/test/prometheus/meter"
)

// exposed are series as the rules of adapter-config.yaml want them.
const exposed = `
checkout_requests_total{namespace="default",pod="cart-1"} 0 +20
orders_in_flight{namespace="default",pod="orders-1",service="orders"} 25
orders_created{namespace="default",pod="orders-1",service="orders"} 1
ingress_latency_seconds{namespace="default",obj_networking_k8s_io_ingress="main"} 0.25
machine_power_watts{node="machine-1"} 180.5
fleet_load_7{namespace="default",pod="cart-1"} 7
cart_items{namespace="default",pod="cart-1"} 3
mail_queue_length{namespace="default",queue="outgoing"} 40
mail_queue_length{namespace="default",queue="bounced"} 1
mail_queue_length{namespace="other",queue="outgoing"} 1000
plant_temperature_celsius{hall="north"} 21.5
container_cpu_usage_seconds_total{namespace="default",pod="cart-1",container="app"} 0 +0.5
container_memory_working_set_bytes{namespace="default",pod="cart-1",container="app"} 67108864
node_cpu_seconds_total{node="machine-1",mode="user"} 0 +1
node_cpu_seconds_total{node="machine-1",mode="idle"} 0 +3
node_memory_MemTotal_bytes{node="machine-1"} 1073741824
node_memory_MemAvailable_bytes{node="machine-1"} 536870912
`

// TestRuleForms serves prometheus-adapter's configuration, imported by the plugin, with
// rules in each form of its language, from a real Prometheus.
func TestRuleForms(t *testing.T) {
	beside(t)
	workload := meter.New()
	if err := workload.Set(exposed); err != nil {
		t.Fatal(err)
	}
	target := httptest.NewServer(workload)
	defer target.Close()
	server := prometheus.Start(t, prometheus.Scrape(target.URL))
	server.WaitFor(t, `rate(checkout_requests_total[20s]) > 10`)
	serveRules(t, "rule-forms", importRules(t, server.URL))
}

// importRules returns the MetricsBackend that the plugin makes of prometheus-adapter's configuration.
func importRules(t *testing.T, url string) []byte {
	t.Helper()
	imported, err := exec.CommandContext(t.Context(), "go", "run", "../../../cmd/kubectl-metrics_backend", "import", "prometheus-adapter",
		"../../prometheus/manifests/adapter-config.yaml", "--prometheus-url="+url).Output()
	if err != nil {
		t.Fatalf("import prometheus-adapter's configuration: %v", err)
	}
	return imported
}

// serveRules runs serving with rules over the exposed series, and checks the response to a request
// for each.
func serveRules(t *testing.T, account string, backend []byte) (p *process, token string) {
	t.Helper()
	// No kubelet is there: CPU and memory come from Prometheus, too.
	cluster.createNode(t, "machine-1", 1, nil)
	cluster.createPod(t, "machine-1", "cart-1", map[string]string{"app": "cart"}, "app")
	token = administrator(t, account)
	p = cluster.startServing(t, account, "--backend-file="+cluster.writeFile(t, t.TempDir(), "backend.yaml", backend),
		"--service-namespace="+servingNamespace, "--service-name="+account)
	p.waitReady(t)

	const resource = "/apis/metrics.k8s.io/v1"
	const custom, external = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
	for name, test := range map[string]struct {
		path string
		code int
		want []string
	}{
		"a rate of pods":              {path: custom + "/namespaces/default/pods/*/checkout_requests_per_second?labelSelector=app%3Dcart", want: []string{`"name":"cart-1"`}},
		"one pod":                     {path: custom + "/namespaces/default/pods/cart-1/checkout_requests_per_second", want: []string{`"name":"cart-1"`}},
		"a service, by a template":    {path: custom + "/namespaces/default/services/orders/orders_in_flight", want: []string{`"value":"25"`, `"kind":"Service"`}},
		"the pod, by that template":   {path: custom + "/namespaces/default/pods/orders-1/orders_in_flight", want: []string{`"value":"25"`}},
		"the namespace, likewise":     {path: custom + "/namespaces/default/metrics/orders_in_flight", want: []string{`"value":"25"`, `"kind":"Namespace"`}},
		"what a filter leaves out":    {path: custom + "/namespaces/default/services/orders/orders_created", code: http.StatusNotFound},
		"an ingress, with its group":  {path: custom + "/namespaces/default/ingresses.networking.k8s.io/main/ingress_latency_seconds", want: []string{`"value":"250m"`, `"kind":"Ingress"`}},
		"an ingress, by its old name": {path: custom + "/namespaces/default/ingresses.extensions/main/ingress_latency_seconds", want: []string{`"value":"250m"`}},
		"a node, by a default query":  {path: custom + "/nodes/machine-1/power", want: []string{`"value":"180500m"`, `"kind":"Node"`}},
		"no query, plural resources":  {path: custom + "/namespaces/default/pods/cart-1/fleet_load_7", want: []string{`"value":"7"`}},
		"a fixed name":                {path: custom + "/namespaces/default/pods/cart-1/items_before", want: []string{`"value":"3"`}},
		"external, of its namespace":  {path: external + "/mail%5C%7Cqueue_length?labelSelector=queue%3Doutgoing", want: []string{`"value":"40"`}},
		"external, of no namespace":   {path: external + "/plant_temperature_celsius", want: []string{`"value":"21500m"`, `"hall":"north"`}},
		"memory of a pod":             {path: resource + "/namespaces/default/pods/cart-1", want: []string{`"name":"app"`, `"memory":"64Mi"`, `"window":"20s"`}},
		"memory of a node":            {path: resource + "/nodes/machine-1", want: []string{`"memory":"512Mi"`, `"cpu":`}},
		"explained":                   {path: custom + "/namespaces/default/pods/cart-1/items_before?explain=true", want: []string{`spec.customMetrics.rules[5]`, `avg(cart_items{`}},
		"explained, external":         {path: external + "/mail%5C%7Cqueue_length?explain=true", want: []string{`spec.externalMetrics.rules[0]`, `sum(last_over_time(mail_queue_length{`}},
	} {
		t.Run(name, func(t *testing.T) {
			if test.code == 0 {
				test.code = http.StatusOK
			}
			outcome.Eventually(t, 20*time.Second, "the metric is answered", func(context.Context) error {
				code, body, err := p.get(t.Context(), test.path, token)
				if err != nil {
					return err
				}
				if code != test.code {
					return fmt.Errorf("status %d: %s", code, body)
				}
				for _, want := range test.want {
					if !strings.Contains(body, want) {
						return fmt.Errorf("no %s in %s", want, body)
					}
				}
				return nil
			})
		})
	}
	return p, token
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
