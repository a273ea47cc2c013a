// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packages installs what the cluster needs of the operating system, on Debian and its relatives.
package packages

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// need is a program and the Debian package that brings it.
type need struct {
	program, pkg string
}

var needs = []need{
	{"containerd", "containerd"},
	{"containerd-shim-runc-v2", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{"nft", "nftables"},
	{"conntrack", "conntrack"},
	{"ip", "iproute2"},
}

// cniPlugins must be in one folder; cniFolders are where distributions put it, Debian first.
var (
	cniPlugins = []string{"bridge", "host-local", "loopback"}
	cniFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}
)

const cniPackage = "containernetworking-plugins"

// Missing returns the Debian packages of what is not there.
func Missing() []string {
	var absent []string
	for _, n := range needs {
		if _, err := exec.LookPath(n.program); err != nil {
			absent = append(absent, n.pkg)
		}
	}
	if CNIFolder() == "" {
		absent = append(absent, cniPackage)
	}
	slices.Sort(absent)
	return slices.Compact(absent)
}

// CNIFolder is the folder that holds the CNI plugins, empty where there is none.
func CNIFolder() string {
	for _, folder := range cniFolders {
		if !slices.ContainsFunc(cniPlugins, func(plugin string) bool {
			_, err := os.Stat(filepath.Join(folder, plugin))
			return err != nil
		}) {
			return folder
		}
	}
	return ""
}

// Install brings the packages with apt-get, without their services being started: the cluster runs a
// containerd of its own.
func Install(ctx context.Context, names []string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("programs of the Debian packages %s are missing, and there is no apt-get to install them; install their equivalents", strings.Join(names, ", "))
	}
	if err := aptGet(ctx, "update"); err != nil {
		return err
	}
	if err := aptGet(ctx, append([]string{"install", "--yes", "--no-install-recommends"}, names...)...); err != nil {
		return err
	}
	if absent := Missing(); len(absent) > 0 {
		return fmt.Errorf("after installing %s, programs of %s are still missing from PATH", strings.Join(names, ", "), strings.Join(absent, ", "))
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q"}, args...)...)
	// RUNLEVEL=1 keeps invoke-rc.d from starting the packages' services.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(output.String())
		return fmt.Errorf("apt-get %s: %w:\n%s", args[0], err, text[max(0, len(text)-2000):])
	}
	return nil
}
