// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEveryBinaryIsAToolOfTheModule(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, directives, found := strings.Cut(string(content), "\ntool (\n")
	if !found {
		t.Fatal("go.mod has no block of tools")
	}
	directives, _, _ = strings.Cut(directives, ")")
	listed := map[string]bool{}
	for tool := range strings.FieldsSeq(directives) {
		listed[tool] = true
	}
	built := map[string]bool{}
	for _, tool := range tools {
		built[tool.pkg] = true
	}
	if diff := cmp.Diff(listed, built); diff != "" {
		t.Errorf("tools (-go.mod +built):\n%s", diff)
	}
	if !strings.Contains(string(content), "k8s.io/kubernetes "+KubernetesVersion+"\n") &&
		!strings.Contains(string(content), "k8s.io/kubernetes "+KubernetesVersion+" ") {
		t.Errorf("go.mod has another Kubernetes than %s, which the binaries would say they are", KubernetesVersion)
	}
}

func TestSelectTools(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		names, want []string
		wantErr     string
	}{
		"all":         {want: Names()},
		"two":         {names: []string{"kubectl", "etcd"}, want: []string{"kubectl", "etcd"}},
		"a stranger":  {names: []string{"etcd", "kubeadm"}, wantErr: `"kubeadm"`},
		"an old name": {names: []string{"apiserver"}, wantErr: "kube-apiserver"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selected, err := selectTools(test.names)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %v, want an error with %s", err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tool := range selected {
				got = append(got, tool.name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFolderFollowsTheVersions(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	of := func(mod, sum string) string {
		module := t.TempDir()
		for name, content := range map[string]string{"go.mod": mod, "go.sum": sum} {
			if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		path, err := folder(module, KubernetesVersion)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	base := of("module a", "sum")
	if again := of("module a", "sum"); again != base {
		t.Errorf("the same go.mod in another clone: %s and %s", base, again)
	}
	for name, other := range map[string]string{
		"go.mod": of("module b", "sum"), "go.sum": of("module a", "other"), "their border": of("module as", "um"),
	} {
		if other == base {
			t.Errorf("a change of %s changes nothing", name)
		}
	}
	if _, err := folder(t.TempDir(), KubernetesVersion); err == nil {
		t.Error("a folder without go.mod, and no error")
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "etcd"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	// A directory of that name is no binary.
	if err := os.Mkdir(filepath.Join(folder, "kubectl"), 0o755); err != nil {
		t.Fatal(err)
	}
	wanted, err := selectTools([]string{"etcd", "kubectl", "kubelet"})
	if err != nil {
		t.Fatal(err)
	}
	absent := missing(folder, wanted)
	if len(absent) != 2 || absent[0].name != "kubectl" || absent[1].name != "kubelet" {
		t.Fatalf("got %v, want kubectl and kubelet", absent)
	}
}

func TestLinkerFlags(t *testing.T) {
	t.Parallel()
	const want = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
	if got := linkerFlags(KubernetesVersion); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// Libraries are those of the release; what it replaces for other reasons stays.
func TestEdits(t *testing.T) {
	t.Parallel()
	got, err := edits([]byte(`{"Replace": [
		{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
		{"Old": {"Path": "example.com/fork"}, "New": {"Path": "example.com/of", "Version": "v1.0.0"}}]}`), "v1.31.4")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"-module=" + modulePath + "/kubernetes", "-require=k8s.io/kubernetes@v1.31.4", "-replace=k8s.io/api=k8s.io/api@v0.31.4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGoShowsTheCompilersErrors(t *testing.T) {
	t.Parallel()
	module := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module broken\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { undefinedName() }\n"} {
		if err := os.WriteFile(filepath.Join(module, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := Go(t.Context(), module, func(int) {}, 1<<40, "build", "-v", "-o", os.DevNull, ".")
	if err == nil || !strings.Contains(err.Error(), "undefinedName") {
		t.Fatalf("got %v, want the compiler's words", err)
	}
}
