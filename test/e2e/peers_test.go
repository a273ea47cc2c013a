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

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// metricsServerManifests are metrics-server's own; hack/peers.sh loads its image.
const metricsServerManifests = "test/peers/metrics-server.yaml"

// deployMetricsServer installs the real metrics-server as its users do, with its
// APIService, waits until it answers with metrics, and removes it after the test.
// A MetricsBackend is deleted before: the cluster is one that has none yet.
func deployMetricsServer(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "metricsbackends", "--all", "--timeout=180s")
	t.Cleanup(func() { removeMetricsServer(t) })
	kubectl(t, "apply", "--server-side", "-f", metricsServerManifests)
	kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/metrics-server", "--timeout=180s")
	outcome.Eventually(t, 2*time.Minute, "metrics-server answers through kube-apiserver", func(ctx context.Context) error {
		service, err := getAPIService(ctx, "v1beta1")
		if err != nil {
			return err
		}
		for _, c := range service.Status.Conditions {
			if c.Type == apiregistrationv1.Available && c.Status != apiregistrationv1.ConditionTrue {
				return fmt.Errorf("%s: %s", c.Reason, c.Message)
			}
		}
		body, err := suite.core.RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").DoRaw(ctx)
		if err == nil && !strings.Contains(string(body), `"usage"`) {
			err = fmt.Errorf("no node has figures: %s", body)
		}
		return err
	})
}

// removeMetricsServer removes all of it, and its APIService unless that is another's
// by now.
func removeMetricsServer(t *testing.T) {
	t.Helper()
	if service, err := getAPIService(context.Background(), "v1beta1"); err == nil && service.Labels["k8s-app"] == "metrics-server" {
		if out, err := run("kubectl", "delete", "apiservice", service.Name, "--ignore-not-found"); err != nil {
			outcome.Unsafe(t, "remove metrics-server's APIService: %v: %s", err, out)
		}
	}
	out, err := run("kubectl", "delete", "--ignore-not-found", "--wait", "-n", "kube-system",
		"deployment/metrics-server", "service/metrics-server", "serviceaccount/metrics-server", "rolebinding/metrics-server-auth-reader",
		"clusterrole/system:metrics-server", "clusterrole/system:aggregated-metrics-reader",
		"clusterrolebinding/system:metrics-server", "clusterrolebinding/metrics-server:system:auth-delegator")
	if err != nil {
		outcome.Unsafe(t, "remove metrics-server: %v: %s", err, out)
	}
}
