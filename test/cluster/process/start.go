// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// markVariable is set in the environment of every component to the state directory. A process that was
// started and not yet recorded when the program was killed is found by it, and so are containerd's shims.
const markVariable = "METRICS_BACKEND_CLUSTER_COMPONENT_OF"

// Command is a component to start.
type Command struct {
	Name        string
	Path        string
	Args        []string
	Fingerprint string
}

// Running is a component that this run started.
type Running struct {
	Record
	exited chan struct{}
}

// Exited is closed when the process has ended.
func (r *Running) Exited() <-chan struct{} { return r.exited }

// Start runs the command detached from us (a session of its own, output to its log file), and records it.
func Start(dir state.Dir, command Command) (*Running, error) {
	logPath := dir.Log(command.Name)
	if err := os.MkdirAll(filepath.Dir(logPath), 0o755); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Name, err)
	}
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Name, err)
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(command.Path, command.Args...)
	cmd.Dir = string(dir)
	// Nothing of the caller's environment: a proxy variable would send the apiserver's calls to pods astray.
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		markVariable + "=" + string(dir),
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := keepFiles(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Name, err)
	}
	running := &Running{exited: make(chan struct{})}
	identity, err := Identify(cmd.Process.Pid)
	go func() {
		// The exit status is of no use: how a component ended stands in its log.
		_ = cmd.Wait()
		close(running.exited)
	}()
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w; see %s", command.Name, err, logPath)
	}
	running.Record = Record{
		Name:        command.Name,
		Identity:    identity,
		Fingerprint: command.Fingerprint,
		Started:     time.Now().UTC().Truncate(time.Second),
	}
	if err := running.save(dir); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command.Name, err)
	}
	return running, nil
}

// keepFiles keeps the files that our caller left open for us, a lock or a pipe, from components: they
// outlive us, and would hold the lock for as long as the cluster runs. Go closes its own.
func keepFiles() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("listing our open files: %w", err)
	}
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}
