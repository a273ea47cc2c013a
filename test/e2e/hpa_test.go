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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scaleByCPU has the real HPA controller, which knows only v1beta1, scale a Deployment
// that burns CPU, while kubectl top reads v1. It is a companion of TestWatch.
func scaleByCPU(t *testing.T) {
	applyAutoscaler(t)
	eventually(t, 3*time.Minute, "the HPA is ScalingActive and has scaled up", func(ctx context.Context) error {
		hpa, err := suite.core.AutoscalingV2().HorizontalPodAutoscalers("default").Get(ctx, "burn", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range hpa.Status.Conditions {
			if c.Type == autoscalingv2.ScalingActive && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("ScalingActive=%s, %s: %s", c.Status, c.Reason, c.Message)
			}
		}
		if hpa.Status.CurrentReplicas < 2 {
			return fmt.Errorf("%d replicas, metrics %+v", hpa.Status.CurrentReplicas, hpa.Status.CurrentMetrics)
		}
		return nil
	})
	eventually(t, time.Minute, "kubectl top shows what the HPA saw", func(context.Context) error {
		out, err := run("kubectl", "top", "pods", "-n", "default", "-l", "app=burn", "--no-headers")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// The same controller, unchanged, driven by the watch of client/: how much sooner does it decide? It is a module of its
// own, which imports k8s.io/kubernetes. The cluster's own controller is kept off its namespace.
func TestHorizontalPodAutoscalerByWatch(t *testing.T) {
	requireBackend(t)
	// Without cgo, as it was built before.
	out, err := run("env", "CGO_ENABLED=0", "go", "-C", "test/autoscaler", "test", "-count=1", "-tags=e2e", "-timeout=15m",
		"-v", "-run=^TestWatchAgainstPolling$", ".")
	if err != nil {
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
