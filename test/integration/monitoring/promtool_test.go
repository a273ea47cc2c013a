// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/prometheus"
)

const root = "../../.."

// TestAlerts runs promtool on the rules, and on the cases in which each alert fires and does not.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(root, "config/monitoring/rules.yaml"))
	cases := filepath.Join(root, "test/monitoring/testdata")
	promtool(t, "test", "rules", filepath.Join(cases, "alerts.yaml"), filepath.Join(cases, "day.yaml"))
}

// TestScrapeExample runs promtool on the configuration for a Prometheus without prometheus-operator.
func TestScrapeExample(t *testing.T) {
	example, err := os.ReadFile(filepath.Join(root, "config/monitoring/scrape/prometheus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Debian's Prometheus is built without discovery of Kubernetes. The files exist only in a cluster.
	config := strings.NewReplacer("kubernetes_sd_configs:", "http_sd_configs:", "role: pod\n    namespaces: {names: [metrics-backend-system]}", "url: http://localhost/").Replace(string(example))
	path := filepath.Join(t.TempDir(), "prometheus.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "config", "--syntax-only", path)
}

// promtool is beside the Prometheus that other tests run.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	binary, err := prometheus.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(filepath.Dir(binary), "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
