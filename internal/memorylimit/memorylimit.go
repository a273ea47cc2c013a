// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memorylimit limits Go's memory by the memory limit of its container. Go derives
// GOMAXPROCS from the CPU limit, but no memory limit.
package memorylimit

import (
	"io/fs"
	"runtime/debug"
	"strconv"
	"strings"
)

// Cgroup is where container runtimes mount the container's own cgroup.
const Cgroup = "/sys/fs/cgroup"

// Set limits Go's memory to nine tenths of the limit in cgroup (version 2 or 1), whoever
// set it: the spec, a LimitRange or a VerticalPodAutoscaler. The rest is for memory that Go
// does not count. It does nothing without a limit, and if GOMEMLIMIT is set.
func Set(getenv func(string) string, cgroup fs.FS) {
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, _ := fs.ReadFile(cgroup, file)
		// Version 2 has "max" without a limit, version 1 a number beyond any memory.
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			debug.SetMemoryLimit(limit / 10 * 9)
			return
		}
	}
}
