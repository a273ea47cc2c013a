// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine reads the resource usage of processes and of the whole machine. Linux
// only.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond of the times in /proc/stat; it has been 100 on every Linux for decades.
const ticksPerSecond = 100

// cpuClock is the kind of a process's clock that the scheduler counts, in nanoseconds
// (CPUCLOCK_SCHED of the kernel): /proc has only ticks of 10 ms.
const cpuClock = 2

// CPU returns the processor time of a process so far, in user and kernel mode.
func CPU(pid int) (time.Duration, error) {
	var used unix.Timespec
	// As clock_getcpuclockid(3) does it.
	if err := unix.ClockGettime(int32(^pid<<3|cpuClock), &used); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()), nil
}

// RSS returns the resident memory of a process in bytes.
func RSS(pid int) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(content)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no VmRSS, it has ended", pid)
}

// Load is the machine's processor time so far, of all processors: busy and total.
type Load struct{ Busy, All time.Duration }

// ReadLoad reads the machine's load.
func ReadLoad() (Load, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Load{}, fmt.Errorf("read the machine's load: %w", err)
	}
	first, _, _ := bytes.Cut(content, []byte("\n"))
	var l Load
	for i, field := range bytes.Fields(first)[1:] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return Load{}, fmt.Errorf("read the machine's load: %w", err)
		}
		d := time.Duration(n) * time.Second / ticksPerSecond
		switch i {
		case 3, 4: // idle, and waiting for a disk
		case 8, 9: // guests, which are in user as well
			continue
		default:
			l.Busy += d
		}
		l.All += d
	}
	return l, nil
}

// Since returns the utilization of the processors since an earlier reading, 0 to 1.
func (l Load) Since(earlier Load) float64 {
	if l.All == earlier.All {
		return 0
	}
	return float64(l.Busy-earlier.Busy) / float64(l.All-earlier.All)
}

// OwnCPU returns the processor time of this process so far.
func OwnCPU() (time.Duration, error) { return CPU(os.Getpid()) }

// Name returns the number of the machine's processors and their model.
func Name() string { return fmt.Sprintf("%d processors (%s)", runtime.NumCPU(), Processor()) }

// Processor returns the model of the first processor, as the kernel names it.
func Processor() string {
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown model"
	}
	for line := range strings.Lines(string(content)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown model"
}
