// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// overlay writes the overlay of docs/tasks/gitops.md, in which the operator's namespace and images are set, and returns what
// kubectl apply -k of it would apply.
func overlay(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{
		"overlay/operator/kustomization.yaml": "namespace: elsewhere\nresources: [../../config/operator]\n",
		"overlay/kustomization.yaml": `
resources: [operator]
components: [../config/rbac/other-namespaces]
images:
- {name: metrics-backend/operator, newName: registry.example.com/operator, newTag: v1.2.3}
- {name: metrics-backend/serving, newName: registry.example.com/serving, digest: "sha256:` + digest + `"}
`,
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return kustomized(t, filepath.Join(dir, "overlay"))
}

// An overlay with a namespace and images has the same objects as a release of the chart with them: Roles stay in kube-system
// and default, their subjects follow the ServiceAccount, and SERVING_IMAGE is the image of serving.
func TestOverlayIsARelease(t *testing.T) {
	got := overlay(t)
	delete(got, "Namespace elsewhere")
	want, err := renderIn(t, "elsewhere", `{image: {repository: registry.example.com/operator, tag: v1.2.3},
		serving: {image: {repository: registry.example.com/serving, digest: "sha256:`+digest+`"}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(withoutRelease(t, want)), plain(got)); diff != "" {
		t.Errorf("(-chart +overlay):\n%s", diff)
	}
}
