// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/runbooks"
)

// argoCD is an Argo CD Application that is synchronized and compared by Argo CD's own packages (test/argocd-controller).
type argoCD struct {
	suite  *controlPlane
	binary string
	name   string
	// flags are its sync and compare options.
	flags []string
	// manifests are what is in Git.
	manifests string
}

// argoResource is what Argo CD says about an object.
type argoResource struct {
	Key, Sync, Health, HealthMessage string
	Live, Predicted                  json.RawMessage
}

// argoOperation is how a sync ended.
type argoOperation struct {
	Phase, Message string
	Resources      []struct{ Key, Phase, Status, Message string }
}

// argoSettings installs Argo CD's settings, with the health check as docs/tasks/gitops.md says.
func argoSettings(t *testing.T, suite *controlPlane, tracking string) {
	t.Helper()
	if out, err := kubectl(suite, "create", "namespace", "argocd"); err != nil && !strings.Contains(out, "AlreadyExists") {
		t.Fatalf("%v: %s", err, out)
	}
	applyYAML(t, suite, `{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}, `+
		`data: {application.resourceTrackingMethod: `+tracking+`}}`)
	blocks, err := runbooks.Blocks(runbooks.ReadSection(t, filepath.Join(suite.root, "docs/tasks/gitops.md"), "Argo CD"))
	if err != nil {
		t.Fatalf("docs/tasks/gitops.md: %v", err)
	}
	block := blocks[0]
	if out, err := command(suite, "bash", "-c", `set -euo pipefail; PATH="`+filepath.Dir(suite.kubectl)+`:$PATH"; `+block); err != nil {
		t.Fatalf("%s: %v: %s", block, err, out)
	}
}

// run runs a command of Argo CD's and decodes its answer.
func (a *argoCD) run(ctx context.Context, dir, verb string, into any, flags ...string) error {
	file := filepath.Join(dir, "manifests.yaml")
	if err := os.WriteFile(file, []byte(a.manifests), 0o600); err != nil {
		return err
	}
	args := slices.Concat([]string{verb, "--kubeconfig=" + a.suite.kubeconfig, "--application=" + a.name, "--manifests=" + file}, a.flags, flags)
	cmd := exec.CommandContext(ctx, a.binary, args...)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		log := failure.String()
		return fmt.Errorf("%s: %w: %s", verb, err, log[max(0, len(log)-3000):])
	}
	return json.Unmarshal(out, into)
}

// compare returns the status of each object.
func (a *argoCD) compare(t *testing.T) []argoResource {
	t.Helper()
	var resources []argoResource
	if err := a.run(t.Context(), t.TempDir(), "compare", &resources); err != nil {
		t.Fatal(err)
	}
	return resources
}

// outOfSync returns the objects that differ from Git.
func (a *argoCD) outOfSync(t *testing.T) []string {
	t.Helper()
	var keys []string
	for _, r := range a.compare(t) {
		if r.Sync != "Synced" {
			keys = append(keys, r.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// startSync starts a sync, and returns a function that waits for its end.
func (a *argoCD) startSync(t *testing.T, flags ...string) (ended func() argoOperation) {
	t.Helper()
	var done argoOperation
	var failed error
	closed, dir := make(chan struct{}), t.TempDir()
	go func() {
		defer close(closed)
		failed = a.run(t.Context(), dir, "sync", &done, flags...)
	}()
	return func() argoOperation {
		t.Helper()
		<-closed
		if failed != nil {
			t.Fatal(failed)
		}
		if done.Phase != "Succeeded" {
			t.Fatalf("the sync is %s: %s\n%+v", done.Phase, done.Message, done.Resources)
		}
		return done
	}
}

// isSteady checks that each object is Synced, and the MetricsBackend Healthy.
func (a *argoCD) isSteady(t *testing.T) {
	t.Helper()
	resources := a.compare(t)
	healthy := false
	for _, r := range resources {
		if r.Sync != "Synced" {
			t.Errorf("%s is %s (-live +after a sync):\n%s", r.Key, r.Sync, cmp.Diff(decoded(r.Live), decoded(r.Predicted)))
		}
		if strings.HasPrefix(r.Key, "metricsbackend.io/MetricsBackend/") {
			healthy = r.Health == "Healthy"
			if !healthy {
				t.Errorf("%s is %s: %s", r.Key, r.Health, r.HealthMessage)
			}
		}
	}
	if want := strings.Count(a.manifests, "\nkind: "); len(resources) != want || !healthy {
		t.Errorf("%d objects were compared, %d are in Git; the MetricsBackend is healthy: %t", len(resources), want, healthy)
	}
}

func decoded(body []byte) any {
	var value any
	_ = json.Unmarshal(body, &value)
	return value
}

// backendInGit is the MetricsBackend in Git, in a wave after the operator's.
const backendInGit = `---
apiVersion: metricsbackend.io/v1alpha1
kind: MetricsBackend
metadata:
  name: cluster
  annotations: {argocd.argoproj.io/sync-wave: "1"}
spec:
  resourceMetrics: {}
`

// biggerBackend sets fields in forms that are not the stored ones of Kubernetes' own kinds.
const biggerBackend = backendInGit + `  serving:
    replicas: 3
    resources: {requests: {cpu: "0.5", memory: 1024Mi}}
    nodeSelector: {}
    labels: {team: a}
`

// hookInGit needs metrics, such as a job that creates autoscalers.
const hookInGit = `---
apiVersion: v1
kind: ConfigMap
metadata:
  name: after-metrics
  namespace: default
  annotations: {argocd.argoproj.io/hook: PostSync}
`

// Argo CD's own code installs the operator, then the MetricsBackend, and runs a hook when it is Healthy; in a steady state
// nothing is OutOfSync, by its three ways to compare and both ways to apply; a change, on either side, is; and it prunes
// the MetricsBackend in the foreground. The Application has the backend's name, by which Argo CD recognizes its objects.
func TestArgoCD(t *testing.T) {
	suite := take(t)
	operator := mustKubectl(t, suite, "kustomize", "config/default")
	metrics, err := os.ReadFile(filepath.Join(suite.root, "config/samples/declaredmetrics.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	app := &argoCD{suite: suite, binary: program(t, suite, "argocd-controller"), name: "cluster"}
	t.Cleanup(func() {
		mustKubectlLater(t, suite, "apply", "--server-side", "--force-conflicts", "-k", "config/default")
		mustKubectlLater(t, suite, "delete", "--ignore-not-found", "-f", "config/samples/declaredmetrics.yaml")
		mustKubectlLater(t, suite, "delete", "--ignore-not-found", "configmap", "after-metrics", "-n", "default")
		deleteBackend(t, suite, "cluster")
	})
	inGit := func(backend string) string { return operator + "---\n" + string(metrics) + backend }

	ways := []struct {
		name, tracking string
		flags          []string
	}{
		{"client-side apply", "annotation", nil},
		{"server-side apply", "annotation", []string{"--server-side-apply"}},
		{"server-side apply and diff", "label", []string{"--server-side-apply", "--server-side-diff"}},
		{"client-side apply, objects tracked by label", "label", nil},
		{"client-side apply, server-side diff", "annotation+label", []string{"--server-side-diff"}},
	}
	began := time.Now()
	for i, way := range ways {
		t.Logf("%s, after %s", way.name, time.Since(began).Round(time.Second))
		// A new object: its managedFields are those of this way.
		deleteBackend(t, suite, "cluster")
		argoSettings(t, suite, way.tracking)
		app.flags, app.manifests = way.flags, inGit(backendInGit)
		if i == 0 {
			// Once: Argo CD deletes a former hook in the foreground, and no garbage collector runs here.
			app.manifests += hookInGit
			ended := app.startSync(t)
			// Nor does a controller run pods: the operator is this process.
			keepOperatorAvailable(t, suite)
			ended()
			checkOrder(t, suite)
			app.manifests = inGit(backendInGit)
		} else {
			app.startSync(t)()
		}
		waitReady(t, suite, "cluster")
		app.isSteady(t)

		app.manifests = inGit(biggerBackend)
		if diff := cmp.Diff([]string{"metricsbackend.io/MetricsBackend//cluster"}, app.outOfSync(t)); diff != "" {
			t.Errorf("after a change in Git these are OutOfSync (-want +got):\n%s", diff)
		}
		app.startSync(t)()
		waitReady(t, suite, "cluster")
		app.isSteady(t)
	}

	t.Log("a change in the cluster")
	mustKubectl(t, suite, "patch", "metricsbackend", "cluster", "--type=merge", "-p", `{"spec":{"serving":{"replicas":2}}}`)
	if diff := cmp.Diff([]string{"metricsbackend.io/MetricsBackend//cluster"}, app.outOfSync(t)); diff != "" {
		t.Errorf("after a change in the cluster these are OutOfSync (-want +got):\n%s", diff)
	}

	t.Log("pruned")
	app.manifests = inGit("")
	ended := app.startSync(t, "--prune")
	collectGarbage(t, suite, "cluster")
	pruned := ended()
	if !slices.ContainsFunc(pruned.Resources, func(r struct{ Key, Phase, Status, Message string }) bool {
		return r.Key == "metricsbackend.io/MetricsBackend//cluster" && r.Status == "Pruned"
	}) {
		t.Errorf("not pruned: %+v", pruned)
	}
	if left := app.outOfSync(t); len(left) > 0 {
		t.Errorf("after that these are OutOfSync: %v", left)
	}
}

// keepOperatorAvailable makes the operator's Deployment available once Argo CD has applied it, as the Deployment
// controller would, also after later changes.
func keepOperatorAvailable(t *testing.T, suite *controlPlane) {
	t.Helper()
	available := func(ctx context.Context) error {
		deployment := &appsv1.Deployment{}
		if err := suite.admin.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "metrics-backend-operator"}, deployment); err != nil {
			return err
		}
		switch {
		case deployment.Annotations["argocd.argoproj.io/tracking-id"] == "" && deployment.Labels["app.kubernetes.io/instance"] == "":
			return errors.New("it is not tracked yet")
		case deployment.Status.ObservedGeneration == deployment.Generation:
			return nil
		}
		replicas := *deployment.Spec.Replicas
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), LastUpdateTime: metav1.Now()},
			},
		}
		return suite.admin.Status().Update(ctx, deployment)
	}
	outcome.Eventually(t, patience, "Argo CD applies the operator", available)
	go wait.UntilWithContext(t.Context(), func(ctx context.Context) { _ = available(ctx) }, 200*time.Millisecond)
}

// checkOrder checks by etcd's revisions that the MetricsBackend was created after the operator was available, and the
// hook after the MetricsBackend was Ready.
func checkOrder(t *testing.T, suite *controlPlane) {
	t.Helper()
	deployment, hook := &appsv1.Deployment{}, &corev1.ConfigMap{}
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "metrics-backend-operator"}, deployment); err != nil {
		t.Fatal(err)
	}
	if err := suite.admin.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "after-metrics"}, hook); err != nil {
		t.Fatal(err)
	}
	backend := getBackend(t, suite, "cluster")
	ready := condition(backend, v1alpha1.ConditionReady)
	if ready.Status != metav1.ConditionTrue || revision(t, backend) > revision(t, hook) {
		t.Errorf("the hook was written at revision %s, the MetricsBackend last at %s:%s", hook.ResourceVersion, backend.ResourceVersion, show(backend))
	}
	if created := backend.CreationTimestamp; created.Before(&deployment.Status.Conditions[0].LastTransitionTime) {
		t.Errorf("the MetricsBackend was created at %s, the operator was available at %s", created, deployment.Status.Conditions[0].LastTransitionTime)
	}
}

func revision(t *testing.T, object client.Object) int64 {
	t.Helper()
	value, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// collectGarbage does what the garbage collector does with an object that is deleted in the foreground: nothing has it for
// an owner, so it only removes its own finalizer.
func collectGarbage(t *testing.T, suite *controlPlane, name string) {
	t.Helper()
	outcome.Eventually(t, 2*patience, "the MetricsBackend is deleted in the foreground", func(ctx context.Context) error {
		backend := &v1alpha1.MetricsBackend{}
		err := suite.admin.Get(ctx, client.ObjectKey{Name: name}, backend)
		switch i := slices.Index(backend.Finalizers, metav1.FinalizerDeleteDependents); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case backend.DeletionTimestamp == nil:
			return errors.New("it is not deleted")
		case i >= 0:
			backend.Finalizers = slices.Delete(backend.Finalizers, i, i+1)
			return errors.Join(suite.admin.Update(ctx, backend), errors.New("the operator has not finished"))
		}
		return fmt.Errorf("it has the finalizers %v: %s", backend.Finalizers, show(backend))
	})
}

// mustKubectlLater is mustKubectl for cleanups.
func mustKubectlLater(t *testing.T, suite *controlPlane, args ...string) {
	t.Helper()
	if out, err := kubectl(suite, args...); err != nil {
		t.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
