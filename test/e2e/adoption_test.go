// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// Adoptions of a running metrics-server that cannot succeed, one after the other. Its APIService is written by none, and
// its consumers, kubectl top and an autoscaler by CPU among them, go on each time. The last one succeeds, although the
// operator is killed over and over.
func TestBrokenAdoptions(t *testing.T) {
	deployMetricsServer(t)
	stock := waitPointsTo(t, "v1beta1", theirService)
	c := startClients(t)
	t.Cleanup(func() { _, _ = run("kubectl", "delete", "metricsbackends", "--all", "--timeout=180s") })
	cases := []struct {
		name string
		// breaks prepares the spec.
		breaks func(*v1alpha1.MetricsBackendSpec)
		// started: pods become ready, so that the fault can be made.
		started           func(*testing.T)
		condition, reason string
		status            metav1.ConditionStatus
	}{
		{
			name: "kube-apiserver does not reach the pods", started: blockPods,
			condition: v1alpha1.ConditionStalled, status: metav1.ConditionTrue, reason: v1alpha1.ReasonPodsUnreachable,
		},
		{
			name: "the image cannot be pulled",
			breaks: func(spec *v1alpha1.MetricsBackendSpec) {
				spec.Serving.Image = "registry.invalid/metrics-backend/serving:none"
			},
			condition: v1alpha1.ConditionServingReady, status: metav1.ConditionFalse, reason: v1alpha1.ReasonRolloutFailed,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			backend := adoptingBackend()
			if tc.started != nil {
				// Nothing is taken over while metrics-server answers.
				backend.Spec.ResourceMetrics.Adoption = v1alpha1.AdoptionIfUnavailable
			}
			if tc.breaks != nil {
				tc.breaks(&backend.Spec)
			}
			createUntilEnd(t, backend)
			if tc.started != nil {
				waitCondition(t, v1alpha1.ConditionServingReady, metav1.ConditionTrue, "")
				tc.started(t)
				editBackend(t, func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Adoption = v1alpha1.AdoptionAlways })
			}
			c := waitCondition(t, tc.condition, tc.status, tc.reason)
			t.Logf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
			t.Log(kubectl(t, "top", "nodes"))
			if after := waitPointsTo(t, "v1beta1", theirService); after.Generation != stock.Generation || after.UID != stock.UID {
				t.Errorf("metrics-server's APIService was written: %+v", after)
			}
			if _, err := getAPIService(t.Context(), "v1"); ctrlclient.IgnoreNotFound(err) != nil || err == nil {
				t.Errorf("v1 is registered: %v", err)
			}
		})
	}
	t.Run("the operator is killed over and over", func(t *testing.T) {
		createUntilEnd(t, adoptingBackend())
		killed := 0
		outcome.Eventually(t, 5*time.Minute, "the takeover succeeds nevertheless", func(ctx context.Context) error {
			if killed < 12 {
				killed++
				if out, err := run("kubectl", "delete", "pod", "-n", namespace, "-l", "app.kubernetes.io/name=metrics-backend-operator", "--grace-period=0", "--force"); err != nil {
					return fmt.Errorf("kill the operator: %w: %s", err, out)
				}
			}
			service, err := getAPIService(ctx, "v1beta1")
			switch {
			case err != nil:
				return err
			case service.Spec.Service.Name == "metrics-server" || service.Annotations[v1alpha1.AnnotationUnverified] != "":
				return fmt.Errorf("it points to %s, annotations %v", service.Spec.Service.Name, service.Annotations)
			}
			return nil
		})
		waitReady(t)
		t.Logf("killed %d times", killed)
	})
	finishClients(t, c)
}

// createUntilEnd creates the backend, and deletes it at the end of the test, which hands metrics-server's APIService back.
func createUntilEnd(t *testing.T, backend *v1alpha1.MetricsBackend) {
	t.Helper()
	if err := suite.client.Create(t.Context(), backend); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := run("kubectl", "delete", "metricsbackend", backend.Name, "--timeout=180s"); err != nil {
			outcome.Unsafe(t, "delete the MetricsBackend: %v: %s", err, out)
		}
		// The test's own context has ended.
		if err := outcome.Poll(context.Background(), time.Minute, func(ctx context.Context) error {
			service, err := getAPIService(ctx, "v1beta1")
			if err == nil && service.Spec.Service.Name != "metrics-server" {
				err = fmt.Errorf("it points to %s", service.Spec.Service.Name)
			}
			return err
		}); err != nil {
			outcome.Unsafe(t, "v1beta1 is not handed back: %v", err)
		}
	})
}

// adoptingBackend returns the sample with adoption Always.
func adoptingBackend() *v1alpha1.MetricsBackend {
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: backendName}}
	backend.Spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	backend.Spec.ResourceMetrics.Adoption = v1alpha1.AdoptionAlways
	return backend
}

// blockPods keeps kube-apiserver, which runs on this host, from our pods until the test ends. The kubelet's probes, which
// come from this host, too, and the operator reach them as before: the rule is for a control group of kube-apiserver's own.
func blockPods(t *testing.T) {
	t.Helper()
	const group = "metrics-backend-blocked"
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "unified")); err == nil {
		root = filepath.Join(root, "unified")
	}
	process := []byte(componentPID(t, "kube-apiserver"))
	folder := filepath.Join(root, group)
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a control group
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(folder) })
	if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), process, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(filepath.Join(root, "cgroup.procs"), process, 0o600); err != nil {
			outcome.Unsafe(t, "move kube-apiserver back out of control group %s: %v", group, err)
		}
	})
	var pods corev1.PodList
	if err := suite.client.List(t.Context(), &pods, serving()...); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		rule := []string{"OUTPUT", "-m", "cgroup", "--path", group, "-p", "tcp", "-d", pods.Items[i].Status.PodIP, "-j", "REJECT", "--reject-with", "tcp-reset"}
		if out, err := run("iptables", slices.Concat([]string{"-I"}, rule)...); err != nil {
			t.Fatalf("block pod %s: %v: %s", pods.Items[i].Name, err, out)
		}
		t.Cleanup(func() {
			if out, err := run("iptables", slices.Concat([]string{"-D"}, rule)...); err != nil {
				outcome.Unsafe(t, "open the way to the pods again: %v: %s", err, out)
			}
		})
	}
}

// componentPID returns the process ID of a component of the cluster. Other processes on this machine may have its name.
func componentPID(t *testing.T, name string) string {
	t.Helper()
	out, err := run("go", "-C", "test/cluster", "run", ".", "status")
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			return fields[1]
		}
	}
	t.Fatalf("test/cluster status has no %s (%v):\n%s", name, err, out)
	return ""
}
