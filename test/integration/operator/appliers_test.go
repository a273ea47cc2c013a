// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/runbooks"
)

// Two GitOps tools apply one MetricsBackend with different specs, several times a second: consumers notice nothing, and the
// operator writes no more than the changes need. When one of them stops, the other one's spec holds.
func TestSpecAppliedByTwo(t *testing.T) {
	suite := take(t)
	apply := func(ctx context.Context, manager, team string) error {
		backend := unstructuredOf(map[string]any{
			"apiVersion": "metricsbackend.io/v1alpha1", "kind": "MetricsBackend", "metadata": map[string]any{"name": "cluster"},
			"spec": map[string]any{"resourceMetrics": map[string]any{}, "serving": map[string]any{"labels": map[string]any{"team": team}}},
		})
		return suite.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(backend), client.FieldOwner(manager), client.ForceOwnership)
	}
	const one, other = "argocd-controller", "kustomize-controller"
	if err := apply(t.Context(), one, "a"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteBackend(t, suite, "cluster") })
	waitReady(t, suite, "cluster")
	settled(t, suite)
	registered, err := getAPIService(t.Context(), suite, "v1")
	if err != nil {
		t.Fatal(err)
	}
	load, guard, from := startRequests(t, suite, "v1", "v1beta1"), startGuard(t, suite), len(auditEvents(t, suite))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changes atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
			manager, team := other, "b"
			if changes.Load()%2 == 1 {
				manager, team = one, "a"
			}
			if err := apply(ctx, manager, team); err == nil {
				changes.Add(1)
			}
		}, 150*time.Millisecond)
	}()
	outcome.Eventually(t, patience, "many changes", func(context.Context) error {
		if n := changes.Load(); n < 50 {
			return fmt.Errorf("only %d changes", n)
		}
		return nil
	})
	cancel()
	<-ended
	writes := map[string]int64{}
	for _, e := range auditEvents(t, suite)[from:] {
		if e.writes() && e.ResponseStatus.Code < 300 {
			writes[e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource]++
		}
	}
	t.Logf("%d changes; the operator's writes: %v", changes.Load(), writes)
	if most := changes.Load() + 1; writes["deployments/"] > most || writes["metricsbackends/status"] > 2*most {
		t.Errorf("after %d changes the operator wrote %v", changes.Load(), writes)
	}

	if err := apply(t.Context(), other, "b"); err != nil {
		t.Fatal(err)
	}
	backend := waitReady(t, suite, "cluster")
	if team := backend.Spec.Serving.Labels["team"]; team != "b" {
		t.Errorf("the spec is of %s", team)
	}
	load.stop(t)
	guard.stop(t)
	if now, err := getAPIService(t.Context(), suite, "v1"); err != nil || now.UID != registered.UID {
		t.Errorf("v1 was registered again: %v", err)
	}
}

// A MetricsBackend that client-side apply created goes over to server-side apply with the YAML that docs/tasks/gitops.md has for
// it, also after resourceMetrics: {} was rejected, and nothing changes in the cluster.
func TestServerSideApplyAfterClientSide(t *testing.T) {
	suite := take(t)
	blocks, err := runbooks.YAMLBlocks(runbooks.ReadSection(t, filepath.Join(suite.root, "docs/tasks/gitops.md"), "From client-side to server-side apply"))
	if err != nil {
		t.Fatalf("docs/tasks/gitops.md: %v", err)
	}
	explicit := blocks[0]
	const empty = "  resourceMetrics: {}\n"
	file := func(spec string) string {
		return writeYAML(t, "apiVersion: metricsbackend.io/v1alpha1\nkind: MetricsBackend\nmetadata: {name: cluster}\nspec:\n"+spec)
	}
	t.Cleanup(func() { deleteBackend(t, suite, "cluster") })
	mustKubectl(t, suite, "apply", "-f", file(empty))
	waitReady(t, suite, "cluster")
	before := getBackend(t, suite, "cluster")
	// The first one warns, the second one is rejected, unless Kubernetes has mended it.
	for range 2 {
		out, err := kubectl(suite, "apply", "--server-side", "-f", file(empty))
		t.Logf("%v: %s", err, out)
	}
	for _, spec := range []string{explicit, explicit, empty, empty} {
		if out := mustKubectl(t, suite, "apply", "--server-side", "-f", file(spec)); strings.Contains(out, "Warning") {
			t.Errorf("%s", out)
		}
	}
	if diff := cmp.Diff(before.Spec, getBackend(t, suite, "cluster").Spec); diff != "" {
		t.Errorf("the spec (-before +after):\n%s", diff)
	}
	if backend := waitReady(t, suite, "cluster"); backend.Generation != before.Generation {
		t.Errorf("generation %d, before %d", backend.Generation, before.Generation)
	}
}

// kubectl apply --prune of objects with a label that the operator's objects have, too, leaves these: it only deletes what
// kubectl apply created.
func TestKubectlApplyPrune(t *testing.T) {
	suite := take(t)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	settled(t, suite)
	inGit := func(names ...string) string {
		objects := ""
		for _, name := range names {
			objects += `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + name + `, namespace: default, labels: {app.kubernetes.io/part-of: metrics-backend}}}
`
		}
		return objects
	}
	children := func() string {
		return mustKubectl(t, suite, "get", "-A", "-l", v1alpha1.LabelBackend+"=cluster", "-o=custom-columns=:.kind,:.metadata.namespace,:.metadata.name,:.metadata.uid",
			"deployments,services,secrets,configmaps,serviceaccounts,poddisruptionbudgets,roles,rolebindings,clusterrolebindings,apiservices,pods")
	}
	before := children()
	load := startRequests(t, suite, "v1", "v1beta1")
	applyPruned(t, suite, inGit("kept", "pruned"))
	if out := applyPruned(t, suite, inGit("kept")); !strings.Contains(out, "configmap/pruned pruned") {
		t.Errorf("nothing was pruned: %s", out)
	}
	mustKubectl(t, suite, "delete", "configmap", "kept", "-n", "default")
	load.stop(t)
	if after := children(); after != before || !strings.Contains(before, "Deployment") {
		t.Errorf("objects of the operator:\n%s\nbefore:\n%s", after, before)
	}
}

// applyPruned applies all objects that a user has with the label.
func applyPruned(t *testing.T, suite *controlPlane, objects string) string {
	t.Helper()
	return mustKubectl(t, suite, "apply", "--prune", "-l", "app.kubernetes.io/part-of=metrics-backend", "-f", writeYAML(t, objects))
}

// applyYAML applies objects as a user would.
func applyYAML(t *testing.T, suite *controlPlane, objects string) {
	t.Helper()
	mustKubectl(t, suite, "apply", "--server-side", "--force-conflicts", "-f", writeYAML(t, objects))
}

// writeYAML returns a file with the objects.
func writeYAML(t *testing.T, objects string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
