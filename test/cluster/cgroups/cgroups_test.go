// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

func TestHierarchies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mountinfo string
		want      []Hierarchy
	}{
		"hybrid": {
			`31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`,
			[]Hierarchy{
				{Mountpoint: "/sys/fs/cgroup/cpu,cpuacct", Controllers: []string{"rw", "cpu", "cpuacct"}},
				{Mountpoint: "/sys/fs/cgroup/systemd", Controllers: []string{"rw", "name=systemd"}},
				{Mountpoint: "/sys/fs/cgroup/unified", Unified: true},
			},
		},
		"version 2": {
			"31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
			[]Hierarchy{{Mountpoint: "/sys/fs/cgroup", Unified: true}},
		},
		"mounted twice": {
			"31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n32 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			[]Hierarchy{{Mountpoint: "/sys/fs/cgroup", Unified: true}},
		},
		"none": {"27 1 254:0 / / rw - ext4 /dev/vda rw\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(test.mountinfo), nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, hierarchies(mounts)); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateFillsACPUSetFromItsParent(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, filepath.Join(root, "cpuset.cpus"), "0-1\n")
	put(t, filepath.Join(root, "cpuset.mems"), "0\n")
	group := filepath.Join(root, Name)
	put(t, filepath.Join(group, "cpuset.cpus"), "\n")
	put(t, filepath.Join(group, "cpuset.mems"), "1\n")
	if err := Create([]Hierarchy{{Mountpoint: root, Controllers: []string{"rw", "cpuset"}}}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "1\n"} {
		if got, err := os.ReadFile(filepath.Join(group, file)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", file, got, err, want)
		}
	}
}

func TestCreateWithoutHierarchiesSaysSo(t *testing.T) {
	t.Parallel()
	if err := Create(nil); err == nil {
		t.Fatal("no hierarchy, and no error")
	}
}

func TestProcessesLooksIntoEveryGroupBelow(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	self := strconv.Itoa(os.Getpid())
	put(t, filepath.Join(first, Name, "kubepods", "pod", "cgroup.procs"), self+"\n0\n4194305\n")
	put(t, filepath.Join(second, Name, "cgroup.procs"), self+"\n")
	put(t, filepath.Join(second, "another", "cgroup.procs"), "1\n")
	ids, err := Processes([]Hierarchy{{Mountpoint: first}, {Mountpoint: second}, {Mountpoint: filepath.Join(second, "gone")}})
	if err != nil {
		t.Fatal(err)
	}
	// Once, though it is in two hierarchies, and neither the kernel's 0 nor one that has ended.
	if len(ids) != 1 || ids[0].PID != os.Getpid() {
		t.Fatalf("got %v, want this process alone", ids)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, Name, "kubepods", "besteffort", "pod"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), []Hierarchy{{Mountpoint: root}}); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
		t.Fatalf("left %v, %v", entries, err)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
