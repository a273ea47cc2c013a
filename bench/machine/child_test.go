// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChild(t *testing.T) {
	command := exec.Command("sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	if got, err := Child("sleep"); err != nil || got != command.Process.Pid {
		t.Errorf("process %d, %v, want %d", got, err, command.Process.Pid)
	}
	if _, err := Child("no-such-child"); err == nil {
		t.Error("a child that is not there")
	}
}

func TestParseStat(t *testing.T) {
	type stat struct {
		PID    int
		Name   string
		Parent int
		Failed bool
	}
	for name, tc := range map[string]struct {
		content string
		want    stat
	}{
		"plain":       {"12 (etcd) S 7 1 1 0", stat{PID: 12, Name: "etcd", Parent: 7}},
		"parentheses": {"12 (a) (b) S 7 1", stat{PID: 12, Name: "a) (b", Parent: 7}},
		"no name":     {"12", stat{Failed: true}},
		"no parent":   {"12 (etcd) S", stat{Failed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var got stat
			var err error
			got.PID, got.Name, got.Parent, err = parseStat(tc.content)
			got.Failed = err != nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}
