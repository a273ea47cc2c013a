// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"os"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// TestWatch runs side by side what needs minutes of a backend that nobody disturbs:
// the streams that have to last, and other tests that take about as long. What must
// not end a stream happens meanwhile: certificates are rotated, and the operator is
// killed, or replaced.
//
// To add a companion, add a row. It does not restart serving's pods or change what
// they serve, uses names of its own for what it creates, takes little longer than
// watchWindow, and calls neither t.Setenv nor t.Chdir, which parallel tests cannot.
func TestWatch(t *testing.T) {
	measureNamespaces(t)
	requireBackend(t)
	t.Cleanup(func() {
		// A backend that outlived this would keep custom and external metrics for their
		// clients here, a day long, and not be Ready.
		if out, err := run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s"); err != nil {
			outcome.Unsafe(t, "delete the MetricsBackend: %v: %s", err, out)
		}
	})
	startCustomMetrics(t)
	waitServing(t, 2)
	noAlertFires(t)
	pods := startsOfPods(t)
	points := startPolls(t)

	companions := map[string]func(*testing.T){
		"autoscaler, then rotation": func(t *testing.T) {
			t.Run("autoscaler", scaleByCPU)
			t.Run("rotation", rotate)
		},
		"conformance":    watchConformance,
		"kubectl":        func(t *testing.T) { watchByKubectl(t, points) },
		"custom metrics": customMetrics,
		"dashboard":      queryDashboard,
	}
	// Returns when all of them have ended.
	t.Run("side by side", func(t *testing.T) {
		for name, companion := range companions {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				companion(t)
			})
		}
	})
	if got := startsOfPods(t); got != pods {
		outcome.Unsafe(t, "pods were replaced or restarted, so streams had to end:\n%s\nnow:\n%s", pods, got)
	}
}

// watchWindow is how long streams are held: longer than kube-apiserver's timeout of a request that is not a watch, one
// minute.
func watchWindow(t *testing.T) time.Duration {
	t.Helper()
	window, err := time.ParseDuration(cmp.Or(os.Getenv("E2E_WATCH_WINDOW"), "90s"))
	if err != nil || window < 75*time.Second {
		t.Fatalf("E2E_WATCH_WINDOW=%s must be a duration from 75s", os.Getenv("E2E_WATCH_WINDOW"))
	}
	return window
}
