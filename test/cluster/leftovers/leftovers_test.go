// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package leftovers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

func TestFindAndRemove(t *testing.T) {
	t.Parallel()
	root, dir := t.TempDir(), state.Dir(t.TempDir())
	file := func(content string, elements ...string) string {
		path := filepath.Join(elements...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(target string, elements ...string) string {
		path := filepath.Join(elements...)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tasks := dir.Path("containerd", "state", "io.containerd.runtime.v2.task", "k8s.io")
	file("unix:///run/containerd/s/aa", tasks, "one", "address")
	file(`{"version":3,"address":"unix:///run/containerd/s/bb"}`, tasks, "two", "bootstrap.json")
	// Neither half a file nor one that points elsewhere may name a victim.
	file(`{"ver`, tasks, "three", "bootstrap.json")
	file("unix:///etc/passwd", tasks, "four", "address")
	file("unix:///run/containerd/s/../../../etc/passwd", tasks, "five", "address")
	if err := os.MkdirAll(dir.Path("containerd", "root", "io.containerd.grpc.v1.cri", "sandboxes", "aaa111"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir.Path("kubelet"), 0o755); err != nil {
		t.Fatal(err)
	}

	ours := []string{
		file("", root, "run/containerd/s/aa"),
		file("", root, "run/containerd/s/bb"),
		file("", root, "var/lib/cni/results/cni-loopback-aaa111-lo"),
		file("", root, "var/lib/cni/results/cni-loopback-bbb222-lo"),
		file("", root, "var/lib/cni/results/metrics-backend-cluster-bbb222-eth0"),
		file("", root, "var/lib/kubelet/device-plugins/kubelet.sock"),
		link(dir.Path("pod-logs", "x", "0.log"), root, "var/log/containers/burn.log"),
	}
	others := []string{
		file("", root, "etc/passwd"),
		file("", root, "var/lib/cni/results/podman-ccc333-eth0"),
		file("", root, "run/containerd/containerd.sock"),
		link("/var/log/pods/x/0.log", root, "var/log/containers/other.log"),
	}
	found, err := find(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	slices.Sort(ours)
	if diff := cmp.Diff(ours, found); diff != "" {
		t.Fatalf("found (-want +got):\n%s", diff)
	}
	if err := remove(root, found); err != nil {
		t.Fatal(err)
	}
	for _, path := range ours {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	for _, path := range others {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("another's file: %v", err)
		}
	}
	for folder, want := range map[string]bool{"run/containerd/s": false, "run/containerd": true, "var/lib/kubelet": false, "var/lib/cni/results": true} {
		if _, err := os.Stat(filepath.Join(root, folder)); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", folder, err == nil, want)
		}
	}
	// Repeated after an interruption: what is gone is no error.
	if err := remove(root, found); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsFoundWithoutACluster(t *testing.T) {
	t.Parallel()
	found, err := find(t.TempDir(), state.Dir(filepath.Join(t.TempDir(), "none")))
	if err != nil || len(found) != 0 {
		t.Fatalf("got %v, %v, want nothing", found, err)
	}
}
