// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cgroups owns one control group, the root of all pods', so that every process of a container is
// found by where it is, and nothing else is.
package cgroups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
)

// Name is the control group's, below the root of each hierarchy; the kubelet's cgroupRoot.
const Name = "metrics-backend-cluster"

// unifiedRoot is where the kubelet expects version 2.
const unifiedRoot = "/sys/fs/cgroup"

// Hierarchy is one mounted tree of control groups.
type Hierarchy struct {
	Mountpoint string
	// Unified is true for version 2. A hybrid machine has both.
	Unified bool
	// Controllers are version 1's, as the mount's options name them.
	Controllers []string
}

// Hierarchies lists what is mounted.
func Hierarchies() ([]Hierarchy, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return !isCgroup(m), false })
	if err != nil {
		return nil, fmt.Errorf("listing the control group hierarchies: %w", err)
	}
	return hierarchies(mounts), nil
}

func isCgroup(m *mountinfo.Info) bool { return m.FSType == "cgroup" || m.FSType == "cgroup2" }

func hierarchies(mounts []*mountinfo.Info) []Hierarchy {
	var all []Hierarchy
	for _, m := range mounts {
		if isCgroup(m) && !slices.ContainsFunc(all, func(h Hierarchy) bool { return h.Mountpoint == m.Mountpoint }) {
			h := Hierarchy{Mountpoint: m.Mountpoint, Unified: m.FSType == "cgroup2"}
			if !h.Unified {
				h.Controllers = strings.Split(m.VFSOptions, ",")
			}
			all = append(all, h)
		}
	}
	return all
}

// Create makes the control group in every hierarchy that the kubelet looks at.
func Create(all []Hierarchy) error {
	if len(all) == 0 {
		return errors.New("no control group hierarchy is mounted below /sys/fs/cgroup; a kubelet cannot run here")
	}
	pure := slices.ContainsFunc(all, func(h Hierarchy) bool { return h.Unified && h.Mountpoint == unifiedRoot })
	for _, h := range all {
		if h.Unified && !pure {
			continue
		}
		group := filepath.Join(h.Mountpoint, Name)
		if h.Unified {
			if err := enable(h.Mountpoint); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("making the control group %s: %w", group, err)
		}
		if h.Unified {
			if err := enable(group); err != nil {
				return err
			}
		}
		if slices.Contains(h.Controllers, "cpuset") {
			if err := inheritCPUSet(h.Mountpoint, group); err != nil {
				return err
			}
		}
	}
	return nil
}

// enable gives a group's children the controllers that it has and the kubelet uses.
func enable(group string) error {
	content, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of %s: %w", group, err)
	}
	for controller := range strings.FieldsSeq(string(content)) {
		if !slices.Contains([]string{"cpu", "cpuset", "memory", "pids", "hugetlb", "io"}, controller) {
			continue
		}
		if err := os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("enabling the controller %s below %s (processes in that very group prevent it): %w", controller, group, err)
		}
	}
	return nil
}

// inheritCPUSet: version 1 makes a cpuset empty, and no process can join an empty one.
func inheritCPUSet(parent, group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(group, file))
		if err != nil {
			return fmt.Errorf("reading the control group: %w", err)
		}
		if len(bytes.TrimSpace(have)) > 0 {
			continue
		}
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return fmt.Errorf("reading the control group: %w", err)
		}
		if err := os.WriteFile(filepath.Join(group, file), bytes.TrimSpace(value), 0o644); err != nil {
			return fmt.Errorf("filling the control group %s: %w", group, err)
		}
	}
	return nil
}

// Processes returns every process in the control group and below it.
func Processes(all []Hierarchy) ([]process.Identity, error) {
	seen := map[int]bool{}
	var ids []process.Identity
	err := walk(all, func(group string) error {
		content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if gone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing the processes of pods: %w", err)
		}
		for field := range strings.FieldsSeq(string(content)) {
			pid, err := strconv.Atoi(field)
			if err != nil || pid == 0 || seen[pid] {
				continue
			}
			seen[pid] = true
			if id, err := process.Identify(pid); err == nil {
				ids = append(ids, id)
			}
		}
		return nil
	})
	return ids, err
}

// Remove removes the control group, whose processes have ended. The kernel may need a moment to see that.
func Remove(ctx context.Context, all []Hierarchy) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		var groups []string
		if err := walk(all, func(group string) error { groups = append(groups, group); return nil }); err != nil {
			return err
		}
		if len(groups) == 0 {
			return nil
		}
		var failed error
		for _, group := range slices.Backward(groups) {
			if err := unix.Rmdir(group); err != nil && !gone(err) {
				failed = errors.Join(failed, fmt.Errorf("removing the control group %s: %w", group, err))
			}
		}
		if failed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return failed
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// walk visits the control group in each hierarchy, parents first.
func walk(all []Hierarchy, visit func(group string) error) error {
	for _, h := range all {
		err := filepath.WalkDir(filepath.Join(h.Mountpoint, Name), func(path string, entry fs.DirEntry, err error) error {
			if gone(err) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("listing the control groups of pods: %w", err)
			}
			if !entry.IsDir() {
				return nil
			}
			return visit(path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gone: control groups vanish while they are looked at, and then reading a file in one says ENODEV.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
