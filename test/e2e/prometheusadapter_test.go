// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	adapterService = "monitoring/prometheus-adapter"
	adapterPage    = "adopt-prometheus-adapter.md"
	// ruleMetric moves to a rule and back. adapterMetrics stay.
	ruleMetric = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/pods/%2A/checkout_requests_per_second"
)

var adapterMetrics = []string{
	"/apis/custom.metrics.k8s.io/v1beta1/namespaces/shop/services/orders/orders_in_flight",
	"/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/mail%5C%7Cqueue_length?labelSelector=queue%3Doutgoing",
}

// The real prometheus-adapter, by its runbook: it moves in, a metric moves to a rule and back, it is down for a while, and it
// moves out. The HPA controller scales by its metrics and by ours, and no request fails.
func TestPrometheusAdapter(t *testing.T) {
	installPlugin(t)
	kubectl(t, "delete", "metricsbackends", "--all", "--timeout=180s")
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s") })
	startShop(t)
	startPrometheusAdapter(t)
	variables := []string{"INSTALL=" + renderManifest(t, "dev"), "PROMETHEUS=" + prometheusURL(t, "prometheus"), "NAMESPACE=" + shop, "METRIC=checkout_requests_per_second"}
	answered := func(by string) {
		t.Helper()
		out, err := run(plugin(), "explain", "checkout_requests_per_second", "-n", shop, "--for=pods")
		if err != nil || !strings.Contains(out, by) {
			t.Errorf("not answered by %s: %v\n%s", by, err, out)
		}
	}
	paths := append([]string{"/apis/custom.metrics.k8s.io/v1beta1", "/apis/external.metrics.k8s.io/v1beta1", ruleMetric}, adapterMetrics...)
	shopScales(t)

	values := startTraffic(t, paths...)
	runbookPart(t, adapterPage, "## Before", "## 2.", variables...)
	for _, version := range []string{"v1beta1.custom", "v1beta1.external"} {
		waitPointsTo(t, version, ourService)
	}
	answered("adapter-custom")
	shopScales(t)

	runbookPart(t, adapterPage, "## 2.", "## 3.", variables...)
	answered("checkout_requests_total")
	shopScales(t)
	values.finish(t, "while prometheus-adapter moved in, and a metric moved to a rule")

	t.Log("prometheus-adapter is down")
	values = startTraffic(t, ruleMetric)
	kubectl(t, "-n", "monitoring", "scale", "deployment/prometheus-adapter", "--replicas=0")
	outcome.Eventually(t, 2*time.Minute, "the status names it", func(context.Context) error {
		for _, source := range getBackend(t).Status.Sources {
			if source.Name == "adapter-external" && !source.Healthy {
				t.Logf("%s: %s", source.Reason, source.Message)
				return nil
			}
		}
		return fmt.Errorf("sources: %+v", getBackend(t).Status.Sources)
	})
	for _, path := range adapterMetrics {
		err := suite.core.RESTClient().Get().RequestURI(path).MaxRetries(0).Do(t.Context()).Error()
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), `source "adapter-`) {
			t.Errorf("%s: %v", path, err)
		}
	}
	kubectl(t, "-n", "monitoring", "scale", "deployment/prometheus-adapter", "--replicas=1")
	kubectl(t, "metrics-backend", "wait", backendName, "--for=source=adapter-custom", "--timeout=3m")
	kubectl(t, "metrics-backend", "wait", backendName, "--for=source=adapter-external", "--timeout=3m")
	values.finish(t, "of the rule's metric, while prometheus-adapter was down")
	waitAnswers(t, adapterMetrics...)

	values = startTraffic(t, paths...)
	runbookPart(t, adapterPage, "## 3.", "## 4.", variables...)
	answered("adapter-custom")
	shopScales(t)
	runbookPart(t, adapterPage, "## 4.", "", variables...)
	for _, version := range []string{"v1beta1.custom", "v1beta1.external"} {
		waitPointsTo(t, version, adapterService)
	}
	shopScales(t)
	values.finish(t, "while a metric moved back, and prometheus-adapter moved out")
}

// shopScales scales the workloads down, and waits until the HPA controller has scaled them up by a custom metric of pods, one
// of a Service, and an external one.
func shopScales(t *testing.T) {
	t.Helper()
	began := time.Now().Truncate(time.Second)
	kinds := map[string]autoscalingv2.MetricSourceType{
		"cart": autoscalingv2.PodsMetricSourceType, "orders": autoscalingv2.ObjectMetricSourceType, "mailer": autoscalingv2.ExternalMetricSourceType,
	}
	for name := range kinds {
		kubectl(t, "-n", shop, "scale", "deployment/"+name, "--replicas=1")
	}
	for name, kind := range kinds {
		outcome.Eventually(t, 3*time.Minute, name+" is scaled", func(ctx context.Context) error {
			hpa, err := suite.core.AutoscalingV2().HorizontalPodAutoscalers(shop).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if last := hpa.Status.LastScaleTime; last == nil || last.Time.Before(began) {
				return fmt.Errorf("scaled at %s, and down at %s", last, began)
			}
			return scaledUp(ctx, types.NamespacedName{Namespace: shop, Name: name}, kind)
		})
	}
}

// startPrometheusAdapter starts prometheus-adapter, which hack/prometheus-adapter.sh has loaded, and registers it.
func startPrometheusAdapter(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if out, err := run("kubectl", "delete", "--ignore-not-found", "--timeout=120s", "-k", "bin/prometheus-adapter"); err != nil {
			outcome.Unsafe(t, "remove prometheus-adapter: %v: %s", err, out)
		}
	})
	kubectl(t, "apply", "--server-side", "-k", "bin/prometheus-adapter")
	kubectl(t, "-n", "monitoring", "rollout", "status", "deployment/prometheus-adapter", "--timeout=180s")
	waitAnswers(t, append(adapterMetrics, ruleMetric)...)
}

// waitAnswers waits until paths are answered.
func waitAnswers(t *testing.T, paths ...string) {
	t.Helper()
	outcome.Eventually(t, 2*time.Minute, "prometheus-adapter answers", func(ctx context.Context) error {
		for _, path := range paths {
			body, err := suite.core.RESTClient().Get().RequestURI(path).MaxRetries(0).DoRaw(ctx)
			if err != nil {
				return err
			}
			if !strings.Contains(string(body), `"value"`) {
				return fmt.Errorf("%s: %s", path, body)
			}
		}
		return nil
	})
}
