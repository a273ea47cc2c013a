// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/clients"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// autoscaler is that of hack/demo-hpa.yaml.
var autoscaler = types.NamespacedName{Namespace: "default", Name: "burn"}

// settled is how long a version must have been away before it may come back: the
// rule of the clients could not tell a short absence from none.
const settled = clients.Settle + 2*time.Second

// namespaceDeletion is how long a namespace takes to go while no metrics API is
// registered, so that nothing of this product can be in the way. Measured once.
var namespaceDeletion = sync.OnceValues(func() (time.Duration, error) {
	if out, err := run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s"); err != nil {
		return 0, fmt.Errorf("delete the MetricsBackend: %w: %s", err, out)
	}
	return clients.NamespaceDeletion(context.Background(), suite.core, 3)
})

// measureNamespaces must come before the metrics API of a test is set up.
func measureNamespaces(t *testing.T) {
	t.Helper()
	took, err := namespaceDeletion()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a namespace is gone after %s without the operator (median of 3)", took.Round(time.Millisecond))
}

// applyAutoscaler creates the autoscaler and its Deployment again, for the test. Pods of the
// one before would make it active before its own do.
func applyAutoscaler(t *testing.T) {
	t.Helper()
	kubectl(t, "delete", "-f", "hack/demo-hpa.yaml", "--ignore-not-found", "--wait")
	kubectl(t, "wait", "--for=delete", "pod", "-n", autoscaler.Namespace, "-l", "app=burn", "--timeout=120s")
	kubectl(t, "apply", "-f", "hack/demo-hpa.yaml")
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "-f", "hack/demo-hpa.yaml", "--ignore-not-found", "--wait") })
}

// startClients watches the metrics API, which must answer by now, as its consumers do.
func startClients(t *testing.T) *clients.Clients {
	t.Helper()
	applyAutoscaler(t)
	active := func(ctx context.Context) error {
		_, err := scalingActive(ctx, autoscaler, corev1.ConditionTrue, "")
		return err
	}
	outcome.Eventually(t, 3*time.Minute, "the autoscaler is ScalingActive", active)
	// A replica measures a rate from two samples of its own, so one may know of a new pod some seconds before the
	// other. metrics-server has one replica.
	service, err := getAPIService(t.Context(), "v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.Service.Name != "metrics-server" {
		outcome.Eventually(t, time.Minute, "each replica knows the autoscaler's pods", func(ctx context.Context) error {
			return eachPod(ctx, func(client rest.Interface) error {
				path := "/apis/metrics.k8s.io/v1beta1/namespaces/" + autoscaler.Namespace + "/pods"
				body, err := client.Get().AbsPath(path).Param("labelSelector", "app=burn").DoRaw(ctx)
				if err == nil && !strings.Contains(string(body), `"name":"burn-`) {
					err = fmt.Errorf("it knows none of them: %s", body)
				}
				return err
			})
		})
	}
	// It may have asked the other replica meanwhile.
	outcome.Eventually(t, time.Minute, "the autoscaler is still ScalingActive", active)
	c, err := clients.Start(t.Context(), clients.Options{
		Config:     suite.config,
		Autoscaler: autoscaler,
		Namespaces: true,
		// test/cluster's; the administrator's certificate is good for it too.
		ControllerManager: os.Getenv("CONTROLLER_MANAGER"),
	})
	if err != nil {
		t.Fatal(err)
	}
	// A test that fails half way tells what its consumers saw, too.
	t.Cleanup(func() { finishClients(t, c) })
	return c
}

// finishClients ends the load, prints the report, and fails the test for each thing
// that a consumer noticed.
func finishClients(t *testing.T, c *clients.Clients) *clients.Result {
	t.Helper()
	result, first := c.Stop(context.Background())
	if !first {
		return result
	}
	t.Log(result)
	if len(result.Failures) > 0 {
		outcome.Unsafe(t, "consumers noticed %d failures, see the report", len(result.Failures))
	}
	baseline, err := namespaceDeletion()
	if err != nil {
		t.Error(err)
	}
	if len(result.Namespaces) > 0 {
		outcome.Measure(t, "slowest deletion of a namespace", slices.Max(result.Namespaces), baseline+clients.NamespaceSlack)
	}
	if result.AutoscalerStates == 0 || len(result.Namespaces) == 0 || result.FigureSamples == 0 {
		t.Error("the clients did not see the autoscaler, namespaces or figures: too little to tell")
	}
	return result
}

// waitUsed waits until clients that follow discovery have got answers of the version.
func waitUsed(t *testing.T, c *clients.Clients, version string) {
	t.Helper()
	before := c.Answered(version)
	outcome.Eventually(t, time.Minute, version+" is used by clients that follow discovery", func(context.Context) error {
		if n := c.Answered(version) - before; n < 50 {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
}

// waitAbsent waits until the version has been out of discovery for long enough.
func waitAbsent(t *testing.T, c *clients.Clients, version string) {
	t.Helper()
	outcome.Eventually(t, 5*time.Minute, version+" is out of discovery", func(context.Context) error {
		if d := c.Absent(version); d < settled {
			return fmt.Errorf("for %s, want %s", d, settled)
		}
		return nil
	})
}

// cycles is how often a test repeats: the number in the environment variable, or n.
func cycles(t *testing.T, variable string, n int) int {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		return n
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s must be a number from 1", variable, value)
	}
	return n
}

// both is every version that this product serves.
var both = []v1alpha1.ResourceMetricsVersion{v1alpha1.ResourceMetricsV1, v1alpha1.ResourceMetricsV1beta1}
