// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a working copy of a repository on the Git server of the cluster.
type repository struct{ folder string }

// newRepository returns a working copy without commits of the empty repository at the URL.
func newRepository(t *testing.T, url string) *repository {
	t.Helper()
	r := &repository{t.TempDir()}
	r.git(t, "init", "--initial-branch=main")
	r.git(t, "remote", "add", "origin", url)
	return r
}

// git runs git without the configuration of this machine, and returns what it printed.
func (r *repository) git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = r.folder
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "no_proxy=*",
		"GIT_AUTHOR_NAME=e2e", "GIT_AUTHOR_EMAIL=e2e@example.com", "GIT_COMMITTER_NAME=e2e", "GIT_COMMITTER_EMAIL=e2e@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// write creates or replaces a file.
func (r *repository) write(t *testing.T, path, content string) {
	t.Helper()
	file := filepath.Join(r.folder, path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeAll creates or replaces files, by path.
func (r *repository) writeAll(t *testing.T, files map[string]string) {
	t.Helper()
	for path, content := range files {
		r.write(t, path, content)
	}
}

// edit replaces all occurrences of a text in a file, of which there must be one.
func (r *repository) edit(t *testing.T, path, before, after string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.folder, path))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), before) {
		t.Fatalf("%s does not contain %q", path, before)
	}
	r.write(t, path, strings.ReplaceAll(string(content), before, after))
}

// commit commits what has changed, with tags, pushes it, and returns the commit.
func (r *repository) commit(t *testing.T, message string, tags ...string) string {
	t.Helper()
	r.git(t, "add", "--all")
	r.git(t, "commit", "--allow-empty", "--message", message)
	for _, tag := range tags {
		r.git(t, "tag", tag)
	}
	return r.push(t)
}

// revert reverts the newest commit, pushes that, and returns the commit.
func (r *repository) revert(t *testing.T) string {
	t.Helper()
	r.git(t, "revert", "--no-edit", "HEAD")
	return r.push(t)
}

func (r *repository) push(t *testing.T) string {
	t.Helper()
	r.git(t, "push", "--tags", "origin", "main")
	return r.git(t, "rev-parse", "HEAD")
}
