// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// plugin is the binary that `make load` builds beside those of the images.
func plugin() string { return filepath.Join(suite.root, "bin", "kubectl-metrics_backend") }

// installPlugin puts the plugin into PATH, where kubectl finds it.
func installPlugin(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", filepath.Dir(plugin())+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// verify runs kubectl metrics-backend verify and returns what it printed with its exit code.
func verify(args ...string) (string, int) {
	out, err := run("kubectl", append([]string{"metrics-backend", "verify"}, args...)...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return out, 0
	case errors.As(err, &exit):
		return out, exit.ExitCode()
	}
	return fmt.Sprintf("%s%v", out, err), -1
}

// eventuallyFails runs verify until it fails with all of those lines: an outcome, a
// check, an object and what is wrong with it.
func eventuallyFails(t *testing.T, args []string, lines ...string) {
	t.Helper()
	outcome.Eventually(t, 2*time.Minute, fmt.Sprintf("verify %s fails with %s", args, lines), func(context.Context) error {
		out, code := verify(args...)
		words := strings.Join(strings.Fields(out), " ") // columns are as wide as they must be
		for _, line := range lines {
			if !strings.Contains(words, line) {
				return fmt.Errorf("no line %q, exit code %d:\n%s", line, code, out)
			}
		}
		if code != 1 {
			return fmt.Errorf("exit code %d:\n%s", code, out)
		}
		return nil
	})
}

// kubectl metrics-backend verify passes on a backend that is as it should be, fails with the
// line that tells the cause of each way in which KEP-5207's checklist is not met,
// and passes again when the operator is back. The operator is away meanwhile: it
// would mend each of them.
func TestPluginVerify(t *testing.T) {
	requireBackend(t)
	installPlugin(t)
	applyAutoscaler(t)
	kubectl(t, "wait", "hpa/burn", "--for=condition=ScalingActive", "--timeout=120s")
	if out, code := verify("--expect=v1,v1beta1", "--timeout=60s"); code != 0 || strings.Contains(out, "FAIL") || !strings.Contains(out, "that scale by CPU or memory are active") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	if out := kubectl(t, "metrics-backend", "status"); !strings.HasPrefix(out, "MetricsBackend cluster  Ready\n") || strings.Count(out, "serves v1, v1beta1") < 2 {
		t.Errorf("status:\n%s", out)
	}

	kubectl(t, "-n", namespace, "scale", "deployment/metrics-backend-operator", "--replicas=0")
	t.Cleanup(func() {
		_, _ = run("kubectl", "-n", namespace, "scale", "deployment/metrics-backend-operator", "--replicas=1")
		// What is unavailable here blocks the deletion of namespaces elsewhere.
		out, err := run("kubectl", "metrics-backend", "wait", backendName, "--for=versions=v1,v1beta1", "--timeout=3m")
		if err != nil {
			outcome.Unsafe(t, "the operator does not mend it: %v\n%s", err, out)
		}
	})
	kubectl(t, "-n", namespace, "wait", "pods", "-l", "app.kubernetes.io/name=metrics-backend-operator", "--for=delete", "--timeout=60s")

	// v1's APIService points to no Service, as after a rollback that forgot it.
	const away = `{"spec":{"service":{"name":"metrics-serving-gone"}}}`
	kubectl(t, "patch", "apiservice", "v1.metrics.k8s.io", "--type=merge", "-p", away)
	eventuallyFails(t, nil, "FAIL apiservice-available v1.metrics.k8s.io not Available, ServiceNotFound")
	eventuallyFails(t, []string{"--expect=v1beta1"}, "FAIL apiservice-stale v1.metrics.k8s.io is registered and not expected: it points to "+namespace+"/metrics-serving-gone:443")

	kubectl(t, "delete", "apiservice", "v1.metrics.k8s.io")
	eventuallyFails(t, nil,
		"FAIL apiservice-registered v1.metrics.k8s.io there is no such APIService",
		"FAIL discovery-aggregated /apis lists as current: v1beta1, expected: v1, v1beta1")
	if out, code := verify("--expect=v1beta1", "--skip=backend-conditions", "--timeout=30s"); code != 0 {
		t.Errorf("a finished rollback: exit code %d:\n%s", code, out)
	}

	// Serving trusts the kubelet no more, and what it had grows old; the autoscaler has
	// nothing to scale by. (A right that is taken away, a kubelet remembers for minutes.)
	kubectl(t, "patch", "metricsbackend", backendName, "--type=merge", "-p", `{"spec":{"resourceMetrics":{"maxSampleAge":"35s","scrape":{"interval":"5s","timeout":"4s"}}}}`)
	t.Cleanup(func() {
		_, _ = run("kubectl", "patch", "metricsbackend", backendName, "--type=merge", "-p", `{"spec":{"resourceMetrics":{"maxSampleAge":null,"scrape":null}}}`)
	})
	cluster(t, "up", "--kubelet-certificate=self-signed")
	t.Cleanup(func() { cluster(t, "up", "--kubelet-certificate=signed") })
	eventuallyFails(t, []string{"--expect=v1beta1", "--skip=backend-conditions"},
		"FAIL nodes-fresh /apis/metrics.k8s.io/v1beta1/nodes no data: the list is empty",
		"FAIL hpa-active hpa/default/burn ScalingActive is False, FailedGetResourceMetric")
	cluster(t, "up", "--kubelet-certificate=signed")

	kubectl(t, "patch", "metricsbackend", backendName, "--type=merge", "-p", `{"spec":{"resourceMetrics":{"maxSampleAge":null,"scrape":null}}}`)
	kubectl(t, "-n", namespace, "scale", "deployment/metrics-backend-operator", "--replicas=1")
	if out, code := verify("--timeout=3m"); code != 0 {
		t.Errorf("the operator is back: exit code %d:\n%s", code, out)
	}
}
