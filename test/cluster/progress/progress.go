// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package progress tells a person at a terminal, or a log, what goes on: one line a step, with the time
// since the start.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// quiet is how long a step may say nothing when the output is not a terminal.
const quiet = 30 * time.Second

// Reporter prints steps.
type Reporter struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	start    time.Time

	mu sync.Mutex
	// open says that the terminal's last line is a tick, to be written over.
	open bool
}

// New returns a reporter that counts from now.
func New(out *os.File) *Reporter {
	info, err := out.Stat()
	return newReporter(out, err == nil && info.Mode()&os.ModeCharDevice != 0, time.Now)
}

func newReporter(out io.Writer, terminal bool, now func() time.Time) *Reporter {
	return &Reporter{out: out, terminal: terminal, now: now, start: now()}
}

// Say prints one line.
func (r *Reporter) Say(subject, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	fmt.Fprintln(r.out, r.line(subject, format, args...))
}

// Tick is called often with the state of something long. On a terminal it renews one line.
func (r *Reporter) Tick(subject, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.terminal {
		fmt.Fprintln(r.out, r.line(subject, format, args...))
		return
	}
	r.clear()
	fmt.Fprint(r.out, r.line(subject, format, args...))
	r.open = true
}

// Interval is how often Tick is worth calling.
func (r *Reporter) Interval() time.Duration {
	if r.terminal {
		return time.Second
	}
	return quiet
}

func (r *Reporter) clear() {
	if r.open {
		fmt.Fprint(r.out, "\r\033[K")
		r.open = false
	}
}

func (r *Reporter) line(subject, format string, args ...any) string {
	return fmt.Sprintf("[%s] %-30s %s", Clock(r.now().Sub(r.start)), subject, fmt.Sprintf(format, args...))
}

// Clock formats a duration as minutes and seconds, mm:ss.
func Clock(d time.Duration) string {
	seconds := int(d / time.Second)
	return fmt.Sprintf("%02d:%02d", seconds/60, seconds%60)
}
