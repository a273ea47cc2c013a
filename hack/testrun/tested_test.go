// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A release is refused unless the long and the soak tests have passed on just the tree that is checked out.
func TestReleaseWantsATestedTree(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../tested.sh")
	if err != nil {
		t.Fatal(err)
	}
	repository := t.TempDir()
	bash := func(command string) (string, error) {
		cmd := exec.Command("bash", "-c", ". "+script+"; "+command)
		cmd.Dir = repository
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(command string) {
		t.Helper()
		if out, err := bash(command); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	refused := func(want string) {
		t.Helper()
		if out, err := bash("require_tested v1.2.3"); err == nil || !strings.Contains(out, want) {
			t.Errorf("want a refusal with %q, got %v: %s", want, err, out)
		}
	}
	must("git init -q . && git config user.email a@example.com && git config user.name a && echo bin >.gitignore && echo 1 >file && git add . && git commit -qm 1")
	refused("`make test-long` has not passed")
	must("require_tested v1.2.3-rc.1")
	must("mark_tested long $(clean_tree)")
	refused("`make test-soak` has not passed")
	must("mark_tested soak $(clean_tree)")
	must("require_tested v1.2.3")
	must("echo 2 >file")
	refused("not committed")
	must("! require_tested v1.2.3-rc.1")
	must("git commit -qam 2")
	refused("`make test-long` has not passed")
	must("git revert -n HEAD && git commit -qm 3 && require_tested v1.2.3")
}
