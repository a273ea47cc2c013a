// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	ourServer = "https://10.244.0.1:6443"
	kind      = `
current-context: kind-demo
contexts: [{name: kind-demo, context: {cluster: kind-demo, user: kind-demo}}]
clusters: [{name: kind-demo, cluster: {server: "https://127.0.0.1:40001"}}]
`
	minikube = `
current-context: anything
contexts: [{name: anything, context: {cluster: mini, user: mini}}]
clusters:
- name: mini
  cluster:
    server: https://192.168.49.2:8443
    extensions: [{name: cluster_info, extension: {provider: minikube.sigs.k8s.io, version: v1.37.0}}]
`
	cloud = `
current-context: prod
contexts: [{name: prod, context: {cluster: prod, user: me}}]
clusters: [{name: prod, cluster: {server: "https://prod.example.com"}}]
`
	ourOwn = `
current-context: metrics-backend-cluster
contexts: [{name: metrics-backend-cluster, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://10.244.0.1:6443"}}]
`
	onlyCurrent = "current-context: kind-demo\n"
	noCurrent   = "contexts: []\n"
)

func TestForKubeconfig(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files    []string
		want     Loader
		wantOurs bool
		wantErr  string
	}{
		"kind":                {files: []string{kind}, want: Loader{"the kind cluster demo", []string{"kind", "load", "image-archive", "--name", "demo"}}},
		"minikube":            {files: []string{minikube}, want: Loader{"the minikube profile mini", []string{"minikube", "--profile", "mini", "image", "load"}}},
		"ours":                {files: []string{ourOwn}, wantOurs: true},
		"several files":       {files: []string{onlyCurrent, cloud, kind}, want: Loader{"the kind cluster demo", []string{"kind", "load", "image-archive", "--name", "demo"}}},
		"the first one's":     {files: []string{cloud, kind}, wantErr: "push the images to a registry"},
		"another cluster":     {files: []string{cloud}, wantErr: "https://prod.example.com"},
		"no current context":  {files: []string{noCurrent}, wantErr: "no context is current"},
		"no file":             {wantErr: "no context is current"},
		"not YAML":            {files: []string{"\t{"}, wantErr: "reading KUBECONFIG"},
		"a context of no one": {files: []string{"current-context: gone\n"}, wantErr: "neither kind's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			// A file that does not exist is passed over, as kubectl does.
			list := []string{filepath.Join(folder, "missing")}
			for i, content := range test.files {
				path := filepath.Join(folder, string(rune('a'+i)))
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				list = append(list, path)
			}
			got, ours, err := ForKubeconfig(strings.Join(list, string(filepath.ListSeparator)), ourServer)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %v, want an error with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || ours != test.wantOurs {
				t.Fatalf("ours %t, %v, want %t", ours, err, test.wantOurs)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestACloudClusterIsAnErrorToTellApart(t *testing.T) {
	t.Parallel()
	if _, err := loaderFor(target{context: "prod"}); !errors.Is(err, ErrNoLoader) {
		t.Fatalf("got %v, want ErrNoLoader", err)
	}
}

func TestLoad(t *testing.T) {
	folder := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" > " + filepath.Join(folder, "arguments") + "\n[ \"$1\" != fail ] || { echo no space left; exit 3; }\n"
	if err := os.WriteFile(filepath.Join(folder, "loader"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for name, test := range map[string]struct {
		command       []string
		want, wantErr string
	}{
		"last":    {command: []string{"loader", "load"}, want: "load /x.tar\n"},
		"placed":  {command: []string{"loader", "%s", "--now"}, want: "/x.tar --now\n"},
		"failing": {command: []string{"loader", "fail"}, want: "fail /x.tar\n", wantErr: "no space left"},
		"missing": {command: []string{"no-such-loader"}, wantErr: "is needed for it"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(filepath.Join(folder, "arguments")); err != nil {
				t.Fatal(err)
			}
			err := Loader{Cluster: "a cluster", Command: test.command}.Load(t.Context(), "/x.tar")
			if (err != nil) != (test.wantErr != "") || err != nil && !strings.Contains(err.Error(), test.wantErr) {
				t.Fatalf("got %v, want an error with %q", err, test.wantErr)
			}
			got, err := os.ReadFile(filepath.Join(folder, "arguments"))
			if test.want != "" && (err != nil || string(got) != test.want) {
				t.Fatalf("arguments %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
