// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The flags that stamp a binary, in each of the places that one is built in.
func TestLinkerFlags(t *testing.T) {
	script, err := os.ReadFile("../../hack/ldflags.sh")
	if err != nil {
		t.Fatal(err)
	}
	const unknownDate = "1970-01-01T00:00:00Z"
	commit := func(t *testing.T, dir string) {
		t.Helper()
		for _, args := range [][]string{
			{"init", "-q"}, {"add", "-A"},
			{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "first"},
		} {
			cmd := exec.Command("git", args...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-02-03T04:05:06+02:00")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %q: %v: %s", args, err, out)
			}
		}
	}
	tests := map[string]struct {
		prepare func(t *testing.T, dir string)
		env     []string
		// want holds patterns by variable of k8s.io/component-base/version.
		want map[string]string
	}{
		"neither repository nor environment": {
			want: map[string]string{"gitVersion": "v0.0.0-dev", "gitCommit": "", "gitTreeState": "", "buildDate": unknownDate},
		},
		"repository": {
			prepare: commit, env: []string{"VERSION=v0.1.0"},
			want: map[string]string{"gitVersion": `v0\.1\.0`, "gitCommit": "[0-9a-f]{40}", "gitTreeState": "clean", "buildDate": "2026-02-03T02:05:06Z"},
		},
		"repository with changes": {
			prepare: func(t *testing.T, dir string) {
				commit(t, dir)
				if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			want: map[string]string{"gitVersion": "v0.0.0-dev", "gitCommit": "[0-9a-f]{40}", "gitTreeState": "dirty", "buildDate": "2026-02-03T02:05:06Z"},
		},
		"environment": {
			env:  []string{"GIT_COMMIT=abc", "GIT_TREE_STATE=clean", "BUILD_DATE=2026-01-01T00:00:00Z"},
			want: map[string]string{"gitVersion": "v0.0.0-dev", "gitCommit": "abc", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "hack", "ldflags.sh")
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, script, 0o600); err != nil {
				t.Fatal(err)
			}
			if tc.prepare != nil {
				tc.prepare(t, dir)
			}
			cmd := exec.Command("sh", path)
			cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, tc.env...)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("run ldflags.sh: %v", err)
			}
			fields := strings.Fields(string(out))
			for variable, want := range tc.want {
				pattern := regexp.MustCompile("^k8s.io/component-base/version." + variable + "=" + want + "$")
				found := false
				for _, field := range fields {
					found = found || pattern.MatchString(field)
				}
				if !found {
					t.Errorf("flags %q, want one that matches %s", out, pattern)
				}
			}
		})
	}
}
