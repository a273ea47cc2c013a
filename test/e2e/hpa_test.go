// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// scaleByCPU has the real HPA controller, which knows only v1beta1, scale a Deployment
// that burns CPU, while kubectl top reads v1. It is a companion of TestWatch.
func scaleByCPU(t *testing.T) {
	applyAutoscaler(t)
	outcome.Eventually(t, 3*time.Minute, "the HPA is ScalingActive and has scaled up", func(ctx context.Context) error {
		return scaledUp(ctx, autoscaler, autoscalingv2.ResourceMetricSourceType)
	})
	outcome.Eventually(t, time.Minute, "kubectl top shows what the HPA saw", func(context.Context) error {
		out, err := run("kubectl", "top", "pods", "-n", "default", "-l", "app=burn", "--no-headers")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// scalingActive returns the HPA, and an error unless its condition ScalingActive has that status, and a message with
// those words.
func scalingActive(ctx context.Context, of types.NamespacedName, status corev1.ConditionStatus, words string) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	hpa, err := suite.core.AutoscalingV2().HorizontalPodAutoscalers(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, c := range hpa.Status.Conditions {
		if c.Type == autoscalingv2.ScalingActive && c.Status == status && strings.Contains(c.Message, words) {
			return hpa, nil
		}
	}
	return nil, fmt.Errorf("conditions %+v", hpa.Status.Conditions)
}

// scaledUp returns an error unless the HPA scales by its one metric, which is of that type, and has more than one replica.
func scaledUp(ctx context.Context, of types.NamespacedName, kind autoscalingv2.MetricSourceType) error {
	hpa, err := scalingActive(ctx, of, corev1.ConditionTrue, "")
	if err != nil {
		return err
	}
	current := hpa.Status.CurrentMetrics
	if len(current) != 1 || current[0].Type != kind || hpa.Status.CurrentReplicas < 2 {
		return fmt.Errorf("%d replicas, metrics %+v", hpa.Status.CurrentReplicas, current)
	}
	return nil
}

// The same controller, unchanged, driven by the watch of client/: how much sooner does it decide? It is a module of its
// own, which imports k8s.io/kubernetes. The cluster's own controller is kept off its namespace.
func TestHorizontalPodAutoscalerByWatch(t *testing.T) {
	requireBackend(t)
	// hack/test.sh builds it. Its attributes end with its process.
	out, err := run(filepath.Join(suite.root, "bin", "autoscaler.test"), "-test.v", "-test.timeout=15m", "-test.run=^TestWatchAgainstPolling$")
	switch {
	case err != nil && strings.Contains(out, "=== ATTR  TestWatchAgainstPolling "+outcome.DeadlineKey) &&
		!strings.Contains(out, "=== ATTR  TestWatchAgainstPolling "+outcome.SafetyKey) && !strings.Contains(out, "\npanic: "):
		outcome.Deadlinef(t, "%v\n%s", err, out)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	}
	_, report, found := strings.Cut(out, "The HPA controller of Kubernetes,")
	// The empty line after it, in the indentation of go test; then come the last words of connections.
	report, _, _ = strings.Cut(report, "\n        \n")
	if !found {
		t.Fatalf("no report in\n%s", out)
	}
	t.Log("The HPA controller of Kubernetes," + report)
}
