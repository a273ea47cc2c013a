// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

const (
	release = "metrics-backend"
	// kubectlImage is what the chart's test runs.
	kubectlImage = "metrics-backend/kubectl:dev"
)

// The versions of Helm of test/chart.
const helm3, helm4 = "helm.sh/helm/v3/cmd/helm", "helm.sh/helm/v4/cmd/helm"

// helm runs a version of Helm.
func helm(version string, args ...string) (string, error) {
	return run("go", append([]string{"-C", "test/chart", "tool", version, "--namespace", namespace}, args...)...)
}

func mustHelm(t *testing.T, version string, args ...string) {
	t.Helper()
	if out, err := helm(version, args...); err != nil {
		t.Fatalf("%s %s: %v\n%s", version, strings.Join(args, " "), err, out)
	}
}

// The chart takes over what kubectl installed, is upgraded, and removed, while
// clients of both versions notice nothing: the MetricsBackend, kept with its CRD,
// is served on. Installed again, it is removed in the documented order, and leaves
// nothing. Then Helm 3 installs it from nothing, and runs its test.
func TestChart(t *testing.T) {
	for _, variable := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		t.Setenv(variable, t.TempDir())
	}
	chart := filepath.Join(suite.root, "charts/metrics-backend-operator")
	requireBackend(t)
	t.Cleanup(func() {
		// The tests after this one expect what kubectl installs.
		if out, err := helm(helm4, "uninstall", release, "--ignore-not-found", "--wait"); err != nil {
			outcome.Unsafe(t, "helm uninstall: %v\n%s", err, out)
		}
		if out, err := run(filepath.Join(suite.root, "hack/deploy.sh")); err != nil {
			outcome.Unsafe(t, "deploy the operator again: %v\n%s", err, out)
		}
	})
	load := startTraffic(t, trafficPaths...)
	pods := servingPods(t)

	mustHelm(t, helm4, "install", release, chart, "--take-ownership", "--force-conflicts", "--wait", "--timeout=120s")
	// kubectl goes on owning, too, what it applied.
	mustHelm(t, helm4, "upgrade", release, chart, "--force-conflicts", "--wait", "--timeout=120s",
		"--set", "replicas=2", "--set", "logLevel=2", "--set-json", `extraArgs=["--kube-api-qps=100"]`)
	var operator appsv1.Deployment
	if err := suite.client.Get(t.Context(), ctrlclient.ObjectKey{Namespace: namespace, Name: "metrics-backend-operator"}, &operator); err != nil {
		t.Fatal(err)
	}
	if args := operator.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--kube-api-qps=100") || !slices.Contains(args, "-v=2") {
		t.Errorf("the upgrade's values are not in force: %v", args)
	}
	if operator.Status.AvailableReplicas != 2 {
		t.Errorf("%d operators are available, want 2", operator.Status.AvailableReplicas)
	}
	waitReady(t)

	mustHelm(t, helm4, "uninstall", release, "--wait", "--timeout=120s")
	if diff := cmp.Diff(crds(t), strings.Fields(partOf(t))); diff != "" {
		t.Errorf("want the CRDs alone, left by crds.keep (-want +got):\n%s", diff)
	}
	getBackend(t)
	kubectl(t, "top", "nodes")
	if after := servingPods(t); !slices.Equal(pods, after) {
		t.Errorf("the chart changed serving's pods: %v, then %v", pods, after)
	}
	load.finish(t, "while the chart was installed, upgraded and removed")

	mustHelm(t, helm4, "install", release, chart, "--wait", "--timeout=120s")
	mustHelm(t, helm4, "upgrade", release, chart, "--wait", "--timeout=120s", "--set", "crds.keep=false")
	kubectl(t, "delete", "metricsbackends", "--all", "--wait", "--timeout=120s")
	mustHelm(t, helm4, "uninstall", release, "--wait", "--timeout=120s")
	if left := partOf(t); left != "" {
		t.Errorf("left: %s", left)
	}
	nothingIsLeft(t)

	image := filepath.Join(t.TempDir(), "kubectl.tar")
	program, err := exec.LookPath("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"image", "--tag", kubectlImage, "--binary", program + "=/bin/kubectl", "--out", image}, {"load", image}} {
		if out, err := run("go", append([]string{"-C", "test/cluster", "run", "."}, args...)...); err != nil {
			t.Fatalf("make and load an image with kubectl: %v\n%s", err, out)
		}
	}
	mustHelm(t, helm3, "install", release, chart, "--create-namespace", "--wait", "--timeout=120s", "--set", "test.image="+kubectlImage)
	requireBackend(t)
	mustHelm(t, helm3, "test", release, "--timeout=120s")
	mustHelm(t, helm3, "upgrade", release, chart, "--wait", "--timeout=120s", "--set", "replicas=2")
}

// partOf names the objects of the operator itself.
func partOf(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(kubectl(t, "get", "-A", "-o", "name", "-l", "app.kubernetes.io/part-of=metrics-backend,app.kubernetes.io/name!=metrics-backend-serving",
		"deployments,services,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,customresourcedefinitions"))
}

// crds names the CRDs of the product, in order.
func crds(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(suite.root, "config/crd/bases/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("find the CRDs: %d files, %v", len(files), err)
	}
	var names []string
	for _, file := range files {
		// GROUP_PLURAL.yaml, as controller-gen names them.
		group, plural, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".yaml"), "_")
		names = append(names, "customresourcedefinition.apiextensions.k8s.io/"+plural+"."+group)
	}
	return names
}

// servingPods are the UIDs of serving's pods, but for those that are about to end.
func servingPods(t *testing.T) []types.UID {
	t.Helper()
	var list corev1.PodList
	if err := suite.client.List(t.Context(), &list, serving()...); err != nil {
		t.Fatal(err)
	}
	var uids []types.UID
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			uids = append(uids, pod.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// nothingIsLeft waits until no object of the backend, which has been deleted, is there any more. Its APIServices went
// before it did: one that is left behind points to no server.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	if services, err := apiServices(t.Context()); err != nil || len(services) > 0 {
		outcome.Unsafe(t, "%d APIServices are left of a MetricsBackend that is gone (%v)", len(services), err)
	}
	const kinds = "deployments,replicasets,pods,services,endpointslices,serviceaccounts,secrets,configmaps,poddisruptionbudgets," +
		"networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,apiservices"
	outcome.Eventually(t, time.Minute, "nothing of the backend is left", func(context.Context) error {
		out, err := run("kubectl", "get", kinds, "-A", "-l", v1alpha1.LabelBackend+"="+backendName, "-o", "name")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if left := strings.TrimSpace(out); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
}
