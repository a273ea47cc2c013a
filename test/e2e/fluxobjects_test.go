// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/runbooks"
)

const fluxNamespace = "flux-system"

// The files in the fleet's repository, as docs/tasks/gitops.md names them.
const (
	operatorFile       = "infrastructure/metrics-backend/operator.yaml"
	backendFile        = "infrastructure/metrics/metricsbackend.yaml"
	kustomizationsFile = "clusters/production/metrics.yaml"
	teamFile           = "clusters/production/shop.yaml"
)

// Kinds of Flux.
var (
	kustomizations  = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}
	gitRepositories = schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}
	helmReleases    = schema.GroupVersionKind{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"}
)

// installFlux installs the controllers and the Git server, and removes them after the test. hack/flux.sh has loaded
// their images.
func installFlux(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { removeFlux(t) })
	kubectl(t, "apply", "--server-side", "-f", "bin/flux")
	kubectl(t, "apply", "--server-side", "-f", "test/flux/manifests")
	kubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", "bin/flux")
	for _, deployment := range []string{"git", "source-controller", "kustomize-controller", "helm-controller"} {
		kubectl(t, "-n", fluxNamespace, "rollout", "status", "deployment/"+deployment, "--timeout=120s")
	}
}

// removeFlux removes Flux, in whatever state a test left it, and everything that it installed, and installs the operator as
// the other tests expect it.
func removeFlux(t *testing.T) {
	t.Helper()
	const script = `
		if kubectl get namespace flux-system; then
			kubectl -n flux-system scale deployment --all --replicas=0
			kubectl -n flux-system wait --for=delete pod --all --timeout=60s
		fi
		hack/deploy.sh
		hack/undeploy.sh
		for kind in kustomizations.kustomize.toolkit helmreleases.helm.toolkit helmcharts.source.toolkit gitrepositories.source.toolkit; do
			for object in $(kubectl -n flux-system get $kind.fluxcd.io -o name); do
				kubectl -n flux-system patch $object --type=merge -p '{"metadata":{"finalizers":null}}'
			done
		done
		kubectl delete --ignore-not-found --timeout=120s -f test/flux/manifests
		kubectl delete --ignore-not-found --timeout=60s -f bin/flux
		hack/deploy.sh`
	if out, err := run("bash", "-ec", script); err != nil {
		outcome.Unsafe(t, "remove Flux, and install the operator without it: %v\n%s", err, out)
	}
}

// pageFiles returns the files in a section of docs/tasks/gitops.md, in which each address, which must be there, is replaced by one
// of this cluster.
func pageFiles(t *testing.T, heading string, addresses ...string) map[string]string {
	t.Helper()
	files, err := runbooks.Files(runbooks.ReadSection(t, filepath.Join(suite.root, "docs/tasks/gitops.md"), heading))
	if err != nil {
		t.Fatalf("docs/tasks/gitops.md, section %q: %v", heading, err)
	}
	for i := 0; i < len(addresses); i += 2 {
		if !strings.Contains(strings.Join(slices.Collect(maps.Values(files)), ""), addresses[i]) {
			t.Fatalf("docs/tasks/gitops.md, section %q, has no %s", heading, addresses[i])
		}
	}
	for path, content := range files {
		files[path] = strings.NewReplacer(addresses...).Replace(content)
	}
	return files
}

// pageCommands returns the blocks of commands in a section of docs/tasks/gitops.md, of which there must be that many.
func pageCommands(t *testing.T, heading string, count int) []string {
	t.Helper()
	commands, err := runbooks.Blocks(runbooks.ReadSection(t, filepath.Join(suite.root, "docs/tasks/gitops.md"), heading))
	if err != nil || len(commands) != count {
		t.Fatalf("docs/tasks/gitops.md, section %q: %d blocks of commands, want %d (%v)", heading, len(commands), count, err)
	}
	return commands
}

// shell runs commands in a folder, and returns what they printed.
func shell(t *testing.T, folder, commands string) string {
	t.Helper()
	out, err := run("env", "-C", folder, "bash", "-euo", "pipefail", "-c", commands)
	if err != nil {
		t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	return out
}

// gitServer returns the URL of the Git server.
func gitServer(t *testing.T) string {
	t.Helper()
	var service corev1.Service
	if err := suite.client.Get(t.Context(), ctrlclient.ObjectKey{Namespace: fluxNamespace, Name: "git"}, &service); err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(service.Spec.ClusterIP, "80")
}

// What `flux bootstrap` commits and applies for clusters/production: Flux itself, and what makes it follow the repository.
const (
	componentsFile = "clusters/production/flux-system/gotk-components.yaml"
	syncFile       = "clusters/production/flux-system/gotk-sync.yaml"
)

const syncObjects = `
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: flux-system, namespace: flux-system}
spec: {interval: 1m, url: %s, ref: {branch: main}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: flux-system, namespace: flux-system}
spec:
  interval: 10m
  path: ./clusters/production
  prune: true
  sourceRef: {kind: GitRepository, name: flux-system}
`

// reconcile asks for a reconciliation at once, as `flux reconcile` does.
func reconcile(t *testing.T, kind schema.GroupVersionKind, name string) {
	t.Helper()
	annotate(t, kind, name, "reconcile.fluxcd.io/requestedAt")
}

// upgradeNow asks for an upgrade of a HelmRelease even if nothing has changed, as `flux reconcile helmrelease --force` does.
func upgradeNow(t *testing.T, name string) {
	t.Helper()
	annotate(t, helmReleases, name, "reconcile.fluxcd.io/requestedAt", "reconcile.fluxcd.io/forceAt")
}

// annotate gives the annotations one new value, the time.
func annotate(t *testing.T, kind schema.GroupVersionKind, name string, annotations ...string) {
	t.Helper()
	now := time.Now().Format(time.RFC3339Nano)
	args := []string{"-n", fluxNamespace, "annotate", "--overwrite", "--field-manager=flux-client-side-apply",
		strings.ToLower(kind.Kind) + "." + kind.Group + "/" + name}
	for _, annotation := range annotations {
		args = append(args, annotation+"="+now)
	}
	kubectl(t, args...)
}

// fluxStatus is what the tests read of an object of Flux.
type fluxStatus struct {
	Conditions            []metav1.Condition `json:"conditions"`
	LastAppliedRevision   string             `json:"lastAppliedRevision"`
	LastAttemptedRevision string             `json:"lastAttemptedRevision"`
	// History has the releases of a HelmRelease, the newest first.
	History []struct {
		ChartVersion string `json:"chartVersion"`
	} `json:"history"`
}

func fluxStatusOf(object *unstructured.Unstructured) (*fluxStatus, error) {
	// It has none until its controller has seen it.
	content, _, err := unstructured.NestedMap(object.Object, "status")
	if err != nil {
		return nil, err
	}
	status := &fluxStatus{}
	return status, runtime.DefaultUnstructuredConverter.FromUnstructured(content, status)
}

// ready returns the condition Ready, or an empty one.
func (s *fluxStatus) ready() metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == "Ready" {
			return c
		}
	}
	return metav1.Condition{}
}

// waitFlux waits until check accepts the status of the object.
func waitFlux(t *testing.T, kind schema.GroupVersionKind, name, what string, timeout time.Duration, check func(*fluxStatus) bool) {
	t.Helper()
	outcome.Eventually(t, timeout, kind.Kind+" "+name+": "+what, func(ctx context.Context) error {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(kind)
		if err := suite.client.Get(ctx, ctrlclient.ObjectKey{Namespace: fluxNamespace, Name: name}, object); err != nil {
			return err
		}
		status, err := fluxStatusOf(object)
		if err == nil && !check(status) {
			err = fmt.Errorf("its status is %+v", status)
		}
		return err
	})
}

// waitApplied waits until the Kustomization has applied the commit, and what it applied is ready.
func waitApplied(t *testing.T, name, commit string) {
	t.Helper()
	waitFlux(t, kustomizations, name, "ready at "+commit, 5*time.Minute, func(s *fluxStatus) bool {
		return s.ready().Status == metav1.ConditionTrue && s.LastAppliedRevision == revision(commit)
	})
}

// waitFailed waits until the Kustomization has failed to become ready at the commit, which must not take its timeout of
// ten minutes, and requires the text in its message.
func waitFailed(t *testing.T, name, commit, text string) {
	t.Helper()
	waitFlux(t, kustomizations, name, "failed at "+commit, 90*time.Second, func(s *fluxStatus) bool {
		c := s.ready()
		return c.Status == metav1.ConditionFalse && c.Reason == "HealthCheckFailed" && s.LastAttemptedRevision == revision(commit) &&
			strings.Contains(c.Message, text)
	})
}

// revision is a commit on main as Flux writes it.
func revision(commit string) string { return "main@sha1:" + commit }
