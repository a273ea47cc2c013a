// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/runbooks"
)

// Every command of docs/tasks/runbooks does what it says, on a real cluster: an upgrade to
// another release, a rollback to an image without v1 and forward again, a migration
// from metrics-server, and the uninstallation.
func TestRunbooks(t *testing.T) {
	// TestKEDA and TestPrometheusAdapter run theirs. Datadog's agent needs an account: plugin/adopt has the plan for it.
	requirePages(t, "adopt-datadog.md", "adopt-keda.md", "adopt-prometheus-adapter.md",
		"cluster-upgrade.md", "migrate-from-metrics-server.md", "rollback.md", "uninstall.md")
	requireBackend(t)
	installPlugin(t)
	t.Cleanup(func() {
		// Further tests want the operator of this build, and no spec of a migration.
		if out, err := run("bash", "-c", "hack/deploy.sh && kubectl delete metricsbackends --all --timeout=180s"); err != nil {
			t.Errorf("install the operator again: %v\n%s", err, out)
		}
	})

	next := "INSTALL=" + releaseManifest(t, "next")
	runbook(t, "cluster-upgrade.md", next)
	if image := getBackend(t).Status.Serving.Image; image != "metrics-backend/serving:next" {
		t.Errorf("after the upgrade the image is %s", image)
	}
	runbook(t, "rollback.md",
		`ROLLBACK={"spec":{"serving":{"extraArgs":["`+withoutV1+`"]}}}`,
		`FORWARD={"spec":{"serving":{"extraArgs":null}}}`)
	deployMetricsServer(t)
	runbook(t, "migrate-from-metrics-server.md", next)
	runbook(t, "uninstall.md", next)
}

// requirePages fails when there are other runbooks than those that are known. README.md
// only links to them.
func requirePages(t *testing.T, known ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(suite.root, "docs/tasks/runbooks"))
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, entry := range entries {
		if entry.Name() != "README.md" {
			pages = append(pages, entry.Name())
		}
	}
	if diff := cmp.Diff(pages, known); diff != "" {
		t.Fatalf("docs/tasks/runbooks, and what is known (-there +known):\n%s", diff)
	}
}

// runbook runs the shell blocks of a page one after the other, as its reader would,
// in a folder of its own. The variables are the reader's.
func runbook(t *testing.T, page string, variables ...string) {
	t.Helper()
	runbookPart(t, page, "# ", "", variables...)
}

// runbookPart is runbook for a part of a page: from the line that begins with one text to that which begins with another,
// or to the end. The variables of the page's first block are the caller's.
func runbookPart(t *testing.T, page, from, to string, variables ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(suite.root, "docs/tasks/runbooks", page))
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut("\n"+string(text), "\n"+from)
	if to != "" && found {
		part, _, found = strings.Cut(part, "\n"+to)
	}
	if !found {
		t.Fatalf("%s has no part from %q to %q", page, from, to)
	}
	runBlocks(t, strings.TrimSpace(page+" "+from), part, variables...)
}

// runBlocks is runbook for the text of a page or section.
func runBlocks(t *testing.T, page, text string, variables ...string) {
	t.Helper()
	began := time.Now()
	blocks, err := runbooks.Blocks(text)
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	script := "set -euo pipefail\n"
	for _, block := range blocks {
		script += "set -x\n" + block + "{ set +x; } 2>/dev/null\n"
	}
	// kubectl keeps what it discovered for minutes; APIs come and go here.
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "KUBECACHEDIR="+t.TempDir()), variables...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", page, err, out)
	}
	t.Logf("%s: done in %s", page, time.Since(began).Round(time.Second))
}

// releaseManifest loads the images under another tag, as a release of its own, and returns
// the manifest that installs it.
func releaseManifest(t *testing.T, version string) string {
	t.Helper()
	loadImages(t, version)
	return renderManifest(t, version)
}

// renderManifest returns the manifest that installs the operator with images of a tag.
func renderManifest(t *testing.T, version string) string {
	t.Helper()
	manifest := filepath.Join(t.TempDir(), "install.yaml")
	if out, err := run("bash", "-c", "VERSION=$0 hack/render.sh >$1", version, manifest); err != nil {
		t.Fatalf("render the manifest: %v\n%s", err, out)
	}
	return manifest
}

// loadImages loads the images under another tag.
func loadImages(t *testing.T, tag string) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"operator", "serving"} {
		archive := filepath.Join(folder, name+".tar")
		cluster(t, "image", "--tag", "metrics-backend/"+name+":"+tag,
			"--binary", filepath.Join(suite.root, "bin", name)+"=/"+name, "--out", archive)
		cluster(t, "load", archive)
	}
}
