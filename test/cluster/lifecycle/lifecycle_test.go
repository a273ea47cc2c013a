// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/progress"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// stub is a real process in a component's place: it is healthy once it has written its file.
func stub(t *testing.T, script string) (Cluster, components.Component) {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	cluster := Cluster{Dir: state.Dir(t.TempDir()), Report: progress.New(out)}
	ready := cluster.Dir.Path("ready")
	component := components.Component{
		Name: "stub", Path: shell, Args: []string{"-c", script}, Grace: time.Minute,
		Probe: func(context.Context) error { _, err := os.Stat(ready); return err },
	}
	t.Cleanup(func() {
		if record, known, _ := process.Load(cluster.Dir, "stub"); known {
			_ = process.Kill(context.Background(), record.Identity)
		}
	})
	return cluster, component
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	cluster, component := stub(t, "touch ready; exec sleep 60")
	started, err := cluster.ensure(t.Context(), component)
	if err != nil || !started {
		t.Fatalf("at first: started %t, %v", started, err)
	}
	first := load(t, cluster)
	if started, err := cluster.ensure(t.Context(), component); err != nil || started {
		t.Fatalf("a healthy one: started %t, %v", started, err)
	}
	if load(t, cluster) != first {
		t.Fatal("a healthy component was replaced")
	}
	component.Args = []string{"-c", "touch ready; exec sleep 61"}
	if started, err := cluster.ensure(t.Context(), component); err != nil || !started {
		t.Fatalf("configured otherwise: started %t, %v", started, err)
	}
	second := load(t, cluster)
	if first.Alive() || !second.Alive() {
		t.Fatalf("alive: before %t, after %t", first.Alive(), second.Alive())
	}
	if err := second.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(t.Context(), second.Identity); err != nil {
		t.Fatal(err)
	}
	if started, err := cluster.ensure(t.Context(), component); err != nil || !started {
		t.Fatalf("a killed one: started %t, %v", started, err)
	}
}

func load(t *testing.T, c Cluster) process.Record {
	t.Helper()
	record, known, err := process.Load(c.Dir, "stub")
	if err != nil || !known {
		t.Fatalf("no record: %t, %v", known, err)
	}
	return record
}

func TestAComponentThatEndsIsToldWithItsLog(t *testing.T) {
	t.Parallel()
	cluster, component := stub(t, "echo cannot listen; exit 1")
	err := cluster.start(t.Context(), component)
	if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "cannot listen") {
		t.Fatalf("got %v, want that it ended, and its log", err)
	}
}

func TestATakenPortIsTold(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	cluster, component := stub(t, "touch ready; exec sleep 60")
	component.Addresses = []string{listener.Addr().String()}
	// The wait for a port that may yet come free is cut short.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cluster.start(ctx, component); err == nil || !strings.Contains(err.Error(), component.Addresses[0]) {
		t.Fatalf("got %v, want an error with %s", err, component.Addresses[0])
	}
	if _, known, _ := process.Load(cluster.Dir, "stub"); known {
		t.Fatal("it was started all the same")
	}
}

func TestStraysEndsOnlyOurProgramsWithoutARecord(t *testing.T) {
	t.Parallel()
	cluster, component := stub(t, "touch ready; exec sleep 60")
	if err := cluster.start(t.Context(), component); err != nil {
		t.Fatal(err)
	}
	record := load(t, cluster)
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if sleep, err = filepath.EvalSymlinks(sleep); err != nil {
		t.Fatal(err)
	}
	mine, another := component, component
	mine.Path, another.Path = sleep, "/usr/bin/etcd"
	for _, test := range []struct {
		name      string
		forget    bool
		known     components.Component
		wantAlive bool
	}{
		{"recorded", false, mine, true},
		{"not recorded, but no program of a component", true, another, true},
		{"not recorded", true, mine, false},
	} {
		if test.forget {
			if err := process.Forget(cluster.Dir, "stub"); err != nil {
				t.Fatal(err)
			}
		}
		if err := cluster.strays(t.Context(), []components.Component{test.known}); err != nil {
			t.Fatal(err)
		}
		if record.Alive() != test.wantAlive {
			t.Fatalf("%s: alive %t, want %t", test.name, record.Alive(), test.wantAlive)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("an old line\n", 10_000)+"the last line\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(tail(path), "\n")
	if len(lines) != 10 || lines[9] != "the last line" {
		t.Fatalf("got %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	if got := tail(path + "x"); !strings.Contains(got, "no such file") {
		t.Fatalf("a missing log: %q", got)
	}
}

func TestWithoutAClusterTheErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	cluster := Cluster{Dir: state.Dir(t.TempDir())}
	if _, err := cluster.Status(t.Context(), os.Stderr); !errors.Is(err, ErrNoCluster) {
		t.Fatalf("status: got %v, want ErrNoCluster", err)
	}
	archive := filepath.Join(t.TempDir(), "x.tar")
	if err := cluster.Load(t.Context(), "", []string{archive}); !errors.Is(err, ErrNoCluster) {
		t.Fatalf("load: got %v, want ErrNoCluster", err)
	}
}
