// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// scaleToZero has the stock controller scale to zero, up, and to zero again, by a metric whose series appears and ends.
func scaleToZero(t *testing.T) {
	kubectl(t, "apply", "--server-side", "-f", filepath.Join(prometheusManifests, "scaletozero.yaml"))
	kubectl(t, "-n", shop, "rollout", "status", "deployment/counter", "--timeout=180s")
	waitForMetric(t, openOrders)
	scalesTo(t, 0, "before there is a series")

	setMetrics(t, shop, "app=counter", "orders_open 25\n")
	scalesTo(t, 3, "by the series")

	setMetrics(t, shop, "app=counter", "")
	// Sooner than Prometheus would forget the last sample, after 5 minutes: the scrape without it marks its end.
	outcome.Eventually(t, time.Minute, "the series has ended", func(ctx context.Context) error {
		series, err := queryPrometheus(ctx, prometheusURL(t, "prometheus"), "orders_open")
		if err == nil && len(series) > 0 {
			err = errors.New("it has a value")
		}
		return err
	})
	scalesTo(t, 0, "after the series has ended")
}

// openOrders is the path of the metric in scaletozero.yaml.
const openOrders = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/open-orders"

// scalesTo waits until the autoscaler has scaled the workers by the metric, which each pod serves all the time.
func scalesTo(t *testing.T, replicas int32, when string) {
	t.Helper()
	began := time.Now()
	outcome.Eventually(t, 2*time.Minute, fmt.Sprintf("the HPA scales to %d, %s", replicas, when), func(ctx context.Context) error {
		err := eachPod(ctx, func(pod rest.Interface) error { return readValue(ctx, pod, openOrders) })
		if apierrors.IsNotFound(err) {
			t.Fatalf("the metric has no value, %s: %v", when, err)
		}
		if err != nil {
			return err
		}
		hpa, err := scalingActive(ctx, types.NamespacedName{Namespace: shop, Name: "workers"}, corev1.ConditionTrue, "")
		if err != nil {
			return err
		}
		workers, err := suite.core.AppsV1().Deployments(shop).Get(ctx, "workers", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if has := workers.Status; hpa.Status.DesiredReplicas != replicas || has.Replicas != replicas || has.ReadyReplicas != replicas {
			return fmt.Errorf("%d replicas are desired, %d exist, %d are ready; metrics %+v",
				hpa.Status.DesiredReplicas, has.Replicas, has.ReadyReplicas, hpa.Status.CurrentMetrics)
		}
		return nil
	})
	t.Logf("%d replicas %s, after %s", replicas, when, time.Since(began).Round(time.Second))
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
			request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+net.JoinHostPort(pod.Status.PodIP, "8080")+"/metrics", strings.NewReader(lines))
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
