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

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// Flux' controllers take the product from Git with the files of docs/tasks/gitops.md, each step by a commit: installation, a
// changed spec, upgrade and rollback of the images, an autoscaler by a custom metric, and removal in both orders. A spec that needs manual action fails its
// Kustomization at once, rejected values are named, and consumers notice nothing.
func TestFlux(t *testing.T) {
	measureNamespaces(t)
	installPlugin(t)
	for _, version := range []string{"v0.1.0", "v0.2.0"} {
		loadImages(t, version)
	}
	if out, err := run(filepath.Join(suite.root, "hack/undeploy.sh")); err != nil {
		t.Fatalf("remove the operator: %v\n%s", err, out)
	}
	installFlux(t)
	server := gitServer(t)
	product := newRepository(t, server+"/metrics-backend-operator")
	if err := os.CopyFS(filepath.Join(product.folder, "charts"), os.DirFS(filepath.Join(suite.root, "charts"))); err != nil {
		t.Fatal(err)
	}
	product.commit(t, "First release", "v0.1.0")
	next := product.commit(t, "Second release", "v0.2.0")
	fleet := newRepository(t, server+"/fleet")
	files := pageFiles(t, "Flux", "https://github.com/metricsbackend/", server+"/", "registry.example.com/metrics-backend/", "metrics-backend/")
	fleet.write(t, syncFile, fmt.Sprintf(syncObjects, server+"/fleet"))
	components, err := os.ReadFile(filepath.Join(suite.root, "test/flux/manifests/flux.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	fleet.write(t, componentsFile, string(components))
	fleet.writeAll(t, files)

	commands := pageCommands(t, "Flux", 3)

	t.Log("installation")
	commit := fleet.commit(t, "Metrics")
	kubectl(t, "apply", "--server-side", "-f", filepath.Join(fleet.folder, syncFile))
	waitApplied(t, "metrics", commit)
	waitImage(t, "v0.1.0")
	c := startClients(t)

	// pushed announces a commit, as a webhook would.
	pushed := func(commit string) string {
		reconcile(t, gitRepositories, fluxNamespace)
		return commit
	}

	t.Log("another spec, which replaces the pods")
	fleet.edit(t, backendFile, "spec:\n", "spec:\n  serving: {port: 10443}\n")
	commit = pushed(fleet.commit(t, "Another port"))
	shell(t, fleet.folder, commands[0])
	waitApplied(t, "metrics", commit)

	t.Log("a spec that needs manual action")
	fleet.edit(t, backendFile, "serving: {port: 10443}", "serving: {port: 10443, imagePullSecrets: [{name: absent}]}")
	commit = pushed(fleet.commit(t, "A Secret that does not exist"))
	waitFailed(t, "metrics", commit, "MetricsBackend/cluster status: 'Failed'")
	waitApplied(t, "metrics", pushed(fleet.revert(t)))

	t.Log("upgrade")
	fleet.edit(t, operatorFile, "v0.1.0", "v0.2.0")
	commit = pushed(fleet.commit(t, "Upgrade"))
	waitApplied(t, "metrics", commit)
	waitImage(t, "v0.2.0")
	waitFlux(t, helmReleases, "metrics-backend", "the chart of the commit "+next, time.Minute, func(s *fluxStatus) bool {
		// Helm appends the beginning of the commit to the version.
		return len(s.History) > 0 && strings.Contains(s.History[0].ChartVersion, "+"+next[:12])
	})

	t.Log("rollback")
	waitApplied(t, "metrics", pushed(fleet.revert(t)))
	waitImage(t, "v0.1.0")

	t.Log("an autoscaler by a custom metric")
	startFluxTeam(t, fleet)
	waitApplied(t, "shop", pushed(fleet.commit(t, "An autoscaler")))
	outcome.Eventually(t, 3*time.Minute, "the HPA has scaled up", func(ctx context.Context) error {
		return scaledUp(ctx, types.NamespacedName{Namespace: shop, Name: "cart"}, autoscalingv2.ObjectMetricSourceType)
	})
	t.Log(shell(t, suite.root, pageCommands(t, "An autoscaler by a custom metric", 1)[0]))

	t.Log("values that the chart rejects")
	fleet.edit(t, operatorFile, "  values: ", "  values:\n    replicas: many\n    # ")
	pushed(fleet.commit(t, "Invalid values"))
	waitFlux(t, helmReleases, "metrics-backend", "the invalid value is named", 2*time.Minute, func(s *fluxStatus) bool {
		return s.ready().Status == metav1.ConditionFalse && s.ready().Reason == "UpgradeFailed" && strings.Contains(s.ready().Message, "replicas")
	})
	waitFlux(t, kustomizations, "metrics-backend", "not ready", time.Minute, func(s *fluxStatus) bool {
		return s.ready().Status != metav1.ConditionTrue
	})
	// helm-controller retries, which is progress to kstatus: only the feature CancelHealthCheckOnNewRevision lets this
	// commit be applied before the timeout of the health check.
	commit = pushed(fleet.revert(t))
	waitFlux(t, kustomizations, "metrics-backend", "the revert is applied", time.Minute, func(s *fluxStatus) bool {
		return s.LastAppliedRevision == revision(commit) || slices.ContainsFunc(s.Conditions, func(c metav1.Condition) bool {
			return strings.HasPrefix(c.Message, "Running health checks for revision "+revision(commit))
		})
	})
	// Before 1.5 it does not clear Ready=False of a release that needs no upgrade any more
	// (https://github.com/fluxcd/helm-controller/issues/1362).
	upgradeNow(t, "metrics-backend")
	waitApplied(t, "metrics", commit)

	t.Log("objects edited by hand while the Git server is away")
	kubectl(t, "-n", fluxNamespace, "patch", "service", "git", "--type=merge", "-p", `{"spec":{"selector":{"app":"none"}}}`)
	reconcile(t, gitRepositories, fluxNamespace)
	waitFlux(t, gitRepositories, fluxNamespace, "the failed fetch is reported", 2*time.Minute, func(s *fluxStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, "FetchFailed")
	})
	editByHand(t, "apiservice/v1beta1.metrics.k8s.io", "{.spec.versionPriority}", `{"spec":{"versionPriority":7}}`)
	editByHand(t, "deployment/metrics-serving-"+backendName, "{.spec.replicas}", `{"spec":{"replicas":3}}`)
	kubectl(t, "patch", "metricsbackend", backendName, "--type=merge", "-p", `{"spec":{"serving":{"port":10444}}}`)
	reconcile(t, kustomizations, "metrics")
	waitValue(t, "metricsbackend/"+backendName, "{.spec.serving.port}", "")
	waitReady(t)
	kubectl(t, "-n", fluxNamespace, "patch", "service", "git", "--type=merge", "-p", `{"spec":{"selector":{"app":"git"}}}`)

	t.Log("removal of the operator before the MetricsBackend")
	first, second, _ := strings.Cut(files[kustomizationsFile], "---\n")
	fleet.write(t, kustomizationsFile, second)
	pushed(fleet.commit(t, "Remove the operator"))
	waitGone(t, helmReleases, "metrics-backend")
	kubectl(t, "-n", namespace, "wait", "--for=delete", "deployment/metrics-backend-operator", "--timeout=60s")
	fleet.git(t, "rm", kustomizationsFile)
	pushed(fleet.commit(t, "Remove the MetricsBackend"))
	outcome.Eventually(t, time.Minute, "the MetricsBackend is deleted", func(context.Context) error {
		if getBackend(t).DeletionTimestamp == nil {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	waitUsed(t, c, "v1")
	finishClients(t, c)

	t.Log("the operator again, which ends the deletion")
	fleet.write(t, kustomizationsFile, first)
	commit = pushed(fleet.commit(t, "The operator"))
	waitApplied(t, "metrics-backend", commit)
	waitGone(t, kustomizations, "metrics")
	nothingIsLeft(t)

	t.Log("installation with its CRDs there, and removal in order")
	fleet.write(t, kustomizationsFile, files[kustomizationsFile])
	waitApplied(t, "shop", pushed(fleet.commit(t, "Both again")))
	fleet.git(t, "rm", teamFile)
	pushed(fleet.commit(t, "Remove the autoscaler"))
	waitGone(t, kustomizations, "shop")
	fleet.write(t, kustomizationsFile, first)
	pushed(fleet.commit(t, "Remove the MetricsBackend first"))
	shell(t, fleet.folder, commands[1])
	nothingIsLeft(t)
	fleet.git(t, "rm", kustomizationsFile)
	pushed(fleet.commit(t, "Remove the operator last"))
	shell(t, fleet.folder, commands[2])
	if left := kubectl(t, "get", "crd,clusterrole,clusterrolebinding,apiservice,namespace,priorityclass,validatingadmissionpolicy", "-o", "name"); strings.Contains(left, "metricsbackend") || strings.Contains(left, "metrics-backend") {
		t.Errorf("left:\n%s", left)
	}
}

// startFluxTeam starts a Prometheus, and writes what adds it to the MetricsBackend, and a team's workload, metric and autoscaler.
func startFluxTeam(t *testing.T, fleet *repository) {
	t.Helper()
	t.Cleanup(func() {
		_, _ = run("kubectl", "delete", "--ignore-not-found", "-f", filepath.Join(prometheusManifests, "prometheus.yaml"))
		_, _ = run("kubectl", "delete", "--ignore-not-found", "namespace", shop)
	})
	kubectl(t, "apply", "--server-side", "-f", filepath.Join(prometheusManifests, "prometheus.yaml"))
	kubectl(t, "-n", "monitoring", "rollout", "status", "deployment/prometheus", "--timeout=120s")
	fleet.writeAll(t, pageFiles(t, "An autoscaler by a custom metric", "http://prometheus.monitoring.svc:9090", prometheusURL(t, "prometheus")))
	workloads, err := os.ReadFile(filepath.Join(suite.root, prometheusManifests, "workloads.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The namespace and the Deployment; the autoscaler after them is another one.
	documents := strings.SplitN(string(workloads), "\n---\n", 3)
	fleet.write(t, "apps/shop/cart.yaml", documents[0]+"\n---\n"+documents[1])
}

// waitImage waits until serving has the image of the version, and the MetricsBackend is ready.
func waitImage(t *testing.T, version string) {
	t.Helper()
	waitValue(t, "metricsbackend/"+backendName, "{.status.serving.image}", "metrics-backend/serving:"+version)
	waitReady(t)
	var operator appsv1.Deployment
	if err := suite.client.Get(t.Context(), ctrlclient.ObjectKey{Namespace: namespace, Name: "metrics-backend-operator"}, &operator); err != nil {
		t.Fatal(err)
	}
	if image := operator.Spec.Template.Spec.Containers[0].Image; image != "metrics-backend/operator:"+version {
		t.Errorf("the operator's image is %s, want version %s", image, version)
	}
}

// editByHand patches an object, and waits until the value at the path is again what it was.
func editByHand(t *testing.T, object, path, patch string) {
	t.Helper()
	before := kubectl(t, "-n", namespace, "get", object, "-o", "jsonpath="+path)
	kubectl(t, "-n", namespace, "patch", object, "--type=merge", "-p", patch)
	waitValue(t, object, path, before)
}

// waitValue waits until the object has the value at the path.
func waitValue(t *testing.T, object, path, want string) {
	t.Helper()
	outcome.Eventually(t, 3*time.Minute, object+" has "+path+"="+want, func(context.Context) error {
		out, err := run("kubectl", "-n", namespace, "get", object, "-o", "jsonpath="+path)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %s", err, out)
		case out != want:
			return fmt.Errorf("it is %q", out)
		}
		return nil
	})
}

// waitGone waits until the object of Flux does not exist any more.
func waitGone(t *testing.T, kind schema.GroupVersionKind, name string) {
	t.Helper()
	outcome.Eventually(t, 3*time.Minute, kind.Kind+" "+name+" is gone", func(ctx context.Context) error {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		err := suite.client.Get(ctx, ctrlclient.ObjectKey{Namespace: fluxNamespace, Name: name}, object)
		switch {
		case errors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("it exists, deleted at %v, finalizers %v", object.DeletionTimestamp, object.Finalizers)
		}
		return err
	})
}
