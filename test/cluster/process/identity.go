// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process starts the cluster's components and ends them again, and never anything else: a process
// is known by its id, its start time and the boot it lives in, so that a reused id is not mistaken for it.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Identity names one process for all time.
type Identity struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot, field 22 of /proc/PID/stat.
	Start uint64 `json:"start"`
	// Boot is the kernel's random boot id: after a reboot, ids and start times begin again.
	Boot string `json:"boot"`
}

// stat is what we read of /proc/PID/stat.
type stat struct {
	state   byte
	threads int
	start   uint64
}

// ended: a zombie with more than one thread is one whose first thread has ended and whose others still
// hold its files and ports.
func (s stat) ended() bool { return s.state == 'X' || s.state == 'Z' && s.threads <= 1 }

// parseStat reads the fields after the command name. The name is in parentheses and may itself hold
// spaces and parentheses, so the last one counts.
func parseStat(content []byte) (stat, error) {
	end := bytes.LastIndexByte(content, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("no command name in %q", content)
	}
	fields := strings.Fields(string(content[end+1:]))
	// fields[0] is field 3 of proc(5); the threads are field 20, the start time is field 22.
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("too few fields in %q", content)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time in %q: %w", content, err)
	}
	threads, err := strconv.Atoi(fields[17])
	if err != nil {
		return stat{}, fmt.Errorf("number of threads in %q: %w", content, err)
	}
	return stat{state: fields[0][0], threads: threads, start: start}, nil
}

func readStat(pid int) (stat, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(content)
}

func bootID() (string, error) {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot id: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Identify returns the identity of the process that has this id now.
func Identify(pid int) (Identity, error) {
	s, err := readStat(pid)
	if err != nil {
		return Identity{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: s.start, Boot: boot}, nil
}

// Alive says whether this very process still runs. A zombie does not.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	boot, err := bootID()
	if err != nil || boot != id.Boot {
		return false
	}
	s, err := readStat(id.PID)
	return err == nil && s.start == id.Start && !s.ended()
}

// Signal sends a signal to this very process; none where it is gone. The handle is taken before the
// identity is checked (a pidfd), so the id cannot change hands in between.
func (id Identity) Signal(signal syscall.Signal) error {
	if id.PID <= 0 {
		return nil
	}
	handle, err := os.FindProcess(id.PID)
	if err != nil {
		return fmt.Errorf("opening process %d: %w", id.PID, err)
	}
	defer func() { _ = handle.Release() }()
	if !id.Alive() {
		return nil
	}
	err = handle.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sending %v to process %d: %w", signal, id.PID, err)
	}
	return nil
}
