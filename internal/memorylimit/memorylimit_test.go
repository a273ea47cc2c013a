// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package memorylimit

import (
	"io/fs"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestSet(t *testing.T) {
	const before, ninety = 1 << 40, 120795948 // nine tenths of 128Mi
	v2, v1 := "memory.max", "memory/memory.limit_in_bytes"
	for name, tc := range map[string]struct {
		env   string
		files map[string]string
		want  int64
	}{
		"cgroup v2":               {files: map[string]string{v2: "134217728\n"}, want: ninety},
		"cgroup v2, no limit":     {files: map[string]string{v2: "max\n"}, want: before},
		"cgroup v1":               {files: map[string]string{v1: "134217728\n"}, want: ninety},
		"cgroup v1, no limit":     {files: map[string]string{v1: "9223372036854771712\n"}, want: 8301034833169294539},
		"GOMEMLIMIT is set":       {env: "64MiB", files: map[string]string{v2: "134217728\n"}, want: before},
		"not in a container":      {want: before},
		"a file that has no size": {files: map[string]string{v2: "134217728 x"}, want: before},
	} {
		t.Run(name, func(t *testing.T) {
			original := debug.SetMemoryLimit(before)
			t.Cleanup(func() { debug.SetMemoryLimit(original) })
			cgroup := fstest.MapFS{}
			for path, content := range tc.files {
				cgroup[path] = &fstest.MapFile{Data: []byte(content), Mode: fs.FileMode(0o444)}
			}
			Set(func(string) string { return tc.env }, cgroup)
			if got := debug.SetMemoryLimit(-1); got != tc.want {
				t.Errorf("memory limit %d, want %d", got, tc.want)
			}
		})
	}
}
