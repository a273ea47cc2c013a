// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end after SIGTERM.
const stopTimeout = 20 * time.Second

// Process is a program that runs until Stop, with its output in a file.
type Process struct {
	name    string
	command *exec.Cmd
	log     string
	ended   chan struct{}
	result  error
}

// StartProcess starts a command and writes its output to a log file. The name is used in errors.
func StartProcess(name string, command *exec.Cmd, logFile string) (*Process, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("create the log of %s: %w", name, err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Process{name: name, command: command, log: logFile, ended: make(chan struct{})}
	go func() {
		p.result = command.Wait()
		_ = log.Close()
		close(p.ended)
	}()
	return p, nil
}

// PID of the process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Log is the path of the file with its output.
func (p *Process) Log() string { return p.log }

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err returns why the process has ended. Ended must be closed.
func (p *Process) Err() error {
	return fmt.Errorf("%s has ended: %w; its log is %s", p.name, p.result, p.log)
}

// Stop ends the process, with SIGKILL if necessary.
func (p *Process) Stop() error {
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		_ = p.command.Process.Kill()
		<-p.ended
	}
	return nil
}
