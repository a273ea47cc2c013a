// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

const rest = " 1 7 7 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 %t 0 5678 1000 200"

func TestParseStat(t *testing.T) {
	t.Parallel()
	fields := func(threads string) string { return strings.Replace(rest, "%t", threads, 1) }
	for name, test := range map[string]struct {
		content   string
		want      stat
		wantEnded bool
		wantErr   bool
	}{
		"plain":                     {content: "42 (etcd) S" + fields("9"), want: stat{'S', 9, 5678}},
		"spaces and parentheses":    {content: "42 (a) b (c d) R" + fields("1"), want: stat{'R', 1, 5678}},
		"zombie":                    {content: "42 (kubelet) Z" + fields("1"), want: stat{'Z', 1, 5678}, wantEnded: true},
		"zombie with other threads": {content: "42 (kubelet) Z" + fields("3"), want: stat{'Z', 3, 5678}},
		"dead":                      {content: "42 (kubelet) X" + fields("1"), want: stat{'X', 1, 5678}, wantEnded: true},
		"empty":                     {content: "", wantErr: true},
		"no name":                   {content: "42 etcd S 1 2 3", wantErr: true},
		"cut off":                   {content: "42 (etcd) S 1 7 7", wantErr: true},
		"a start that is no number": {content: strings.Replace("42 (etcd) S"+fields("1"), "5678", "x", 1), wantErr: true},
		"threads that are none":     {content: "42 (etcd) S" + fields("x"), wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseStat([]byte(test.content))
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %t", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if got.ended() != test.wantEnded {
				t.Fatalf("ended: %t, want %t", got.ended(), test.wantEnded)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) b) S" + strings.Replace(rest, "%t", "1", 1)))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if s, err := parseStat(content); err != nil && s != (stat{}) {
			t.Fatalf("an error and a value: %v, %v", s, err)
		}
	})
}

func TestAnotherProcessWithTheSameIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	id, err := Identify(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if !id.Alive() {
		t.Fatal("a running process is not alive")
	}
	earlier, otherBoot := id, id
	earlier.Start--
	otherBoot.Boot = "00000000-0000-0000-0000-000000000000"
	for name, stranger := range map[string]Identity{"earlier": earlier, "before a reboot": otherBoot, "none": {}} {
		if stranger.Alive() {
			t.Errorf("%s: alive", name)
		}
		if err := stranger.Signal(syscall.SIGKILL); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := Stop(t.Context(), time.Second, stranger); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !id.Alive() {
		t.Fatal("a signal to an ended process has reached the one that has its id now")
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Not yet waited for: a zombie.
	if err := Wait(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func TestStartRecordsAndMarks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		end    func(*testing.T, Identity) error
	}{
		"stopped":                    {"echo > ready; exec sleep 60", func(t *testing.T, id Identity) error { return Stop(t.Context(), time.Minute, id) }},
		"killed":                     {"echo > ready; exec sleep 60", func(t *testing.T, id Identity) error { return Kill(t.Context(), id) }},
		"stopped, and it ignores it": {"trap '' TERM; echo > ready; while :; do sleep 0.05; done", func(t *testing.T, id Identity) error { return Stop(t.Context(), 200*time.Millisecond, id) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := state.Dir(t.TempDir())
			shell, err := exec.LookPath("sh")
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(dir.Path("ready"), 0o600); err != nil {
				t.Fatal(err)
			}
			running, err := Start(dir, Command{Name: "shell", Path: shell, Args: []string{"-c", test.script}, Fingerprint: "f"})
			if err != nil {
				t.Fatal(err)
			}
			// Until the script has written to it.
			if _, err := os.ReadFile(dir.Path("ready")); err != nil {
				t.Fatal(err)
			}
			record, known, err := Load(dir, "shell")
			if err != nil || !known {
				t.Fatalf("no record: %t, %v", known, err)
			}
			if diff := cmp.Diff(running.Record, record); diff != "" {
				t.Fatalf("record (-want +got):\n%s", diff)
			}
			marked, err := Marked(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(marked, func(f Found) bool { return f.Identity == record.Identity }) {
				t.Fatalf("the process %v is not among the marked %v", record.Identity, marked)
			}
			if err := test.end(t, record.Identity); err != nil {
				t.Fatal(err)
			}
			<-running.Exited()
			if record.Alive() {
				t.Fatal("alive after its end")
			}
			if err := Forget(dir, "shell"); err != nil {
				t.Fatal(err)
			}
			if records, err := Records(dir); err != nil || len(records) != 0 {
				t.Fatalf("records %v, %v, want none", records, err)
			}
		})
	}
}

func TestStartOfAMissingProgramLeavesNoRecord(t *testing.T) {
	t.Parallel()
	dir := state.Dir(t.TempDir())
	if _, err := Start(dir, Command{Name: "etcd", Path: dir.Path("missing")}); err == nil {
		t.Fatal("started a program that does not exist")
	}
	if _, known, err := Load(dir, "etcd"); known || err != nil {
		t.Fatalf("record: %t, %v, want none", known, err)
	}
}

func TestRecordsNameTheBrokenOneAndReturnTheOthers(t *testing.T) {
	t.Parallel()
	dir := state.Dir(t.TempDir())
	if err := (Record{Name: "etcd", Identity: Identity{PID: 7}}).save(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordPath(dir, "kubelet"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	records, err := Records(dir)
	if err == nil || !strings.Contains(err.Error(), "kubelet") {
		t.Fatalf("error %v, want one that names kubelet", err)
	}
	if len(records) != 1 || records[0].Name != "etcd" {
		t.Fatalf("records %v, want etcd's", records)
	}
}

func TestIsShim(t *testing.T) {
	t.Parallel()
	const socket = "/var/lib/c/containerd/containerd.sock"
	for name, test := range map[string]struct {
		arguments []string
		want      bool
	}{
		"ours":                  {[]string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "k8s.io", "-address", socket}, true},
		"of another containerd": {[]string{"/usr/bin/containerd-shim-runc-v2", "-address", "/run/containerd/containerd.sock"}, false},
		"no value":              {[]string{"containerd-shim-runc-v2", "-address"}, false},
		"another program":       {[]string{"ctr", "-address", socket}, false},
		"a kernel thread":       {[]string{""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmdline := []byte(strings.Join(test.arguments, "\x00") + "\x00")
			if got := isShim(cmdline, socket); got != test.want {
				t.Fatalf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestHasEntryWantsTheWholeEntry(t *testing.T) {
	t.Parallel()
	environment := []byte("PATH=/bin\x00" + markVariable + "=/var/lib/cluster-2\x00")
	if hasEntry(environment, []byte(markVariable+"=/var/lib/cluster")) {
		t.Fatal("another cluster's process was taken for ours")
	}
	if !hasEntry(environment, []byte(markVariable+"=/var/lib/cluster-2")) {
		t.Fatal("ours was not found")
	}
}

func TestComponentsInheritNoFiles(t *testing.T) {
	t.Parallel()
	dir, err := state.At(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// As a shell or flock leaves it open for what it runs.
	path := t.TempDir() + "/callers-lock"
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	running, err := Start(dir, Command{Name: "sleeper", Path: "/bin/sleep", Args: []string{"60"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(running.PID, syscall.SIGKILL); <-running.Exited() })
	folder := fmt.Sprintf("/proc/%d/fd", running.PID)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if target, err := os.Readlink(folder + "/" + entry.Name()); err == nil && target == path {
			t.Errorf("the component holds %s, as file %s", path, entry.Name())
		}
	}
}
