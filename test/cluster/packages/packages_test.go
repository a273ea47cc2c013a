// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMissingNamesThePackageOfEachProgramOnce(t *testing.T) {
	folder := t.TempDir()
	for _, program := range []string{"runc", "nft", "ip", "containerd"} {
		if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder)
	// The CNI plugins are not looked for in PATH: whether they are missing depends on this machine.
	got := slices.DeleteFunc(Missing(), func(name string) bool { return name == cniPackage })
	// containerd is there, its shim and ctr are not.
	if want := []string{"conntrack", "containerd", "iptables"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestInstallWithoutAptGetSaysWhatIsNeeded(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Install(t.Context(), []string{"runc"})
	if err == nil || !strings.Contains(err.Error(), "runc") || !strings.Contains(err.Error(), "apt-get") {
		t.Fatalf("got %v, want the package's name and why", err)
	}
}

func TestInstallThatFailsShowsAptsWords(t *testing.T) {
	folder := t.TempDir()
	script := "#!/bin/sh\necho 'E: Unable to locate package runc' >&2\n[ \"$2\" = update ] && exit 0\nexit 100\n"
	if err := os.WriteFile(filepath.Join(folder, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder)
	err := Install(t.Context(), []string{"runc"})
	if err == nil || !strings.Contains(err.Error(), "apt-get install") || !strings.Contains(err.Error(), "Unable to locate") {
		t.Fatalf("got %v, want what apt-get said", err)
	}
}
