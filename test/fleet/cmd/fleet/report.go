// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// reporter prints lines that begin with the time since the start.
type reporter struct {
	out   io.Writer
	fleet *fleet.Fleet
	begin time.Time

	last    fleet.Stats
	lastAt  time.Time
	lastCPU time.Duration
}

func newReporter(out io.Writer, f *fleet.Fleet) *reporter {
	now := time.Now()
	return &reporter{out: out, fleet: f, begin: now, lastAt: now, lastCPU: cpuTime()}
}

func (r *reporter) line(format string, arguments ...any) {
	elapsed := time.Since(r.begin).Round(time.Second)
	_, _ = fmt.Fprintf(r.out, "%02d:%02d  %s\n", int(elapsed.Minutes()), int(elapsed.Seconds())%60, fmt.Sprintf(format, arguments...))
}

// follow runs a job of the writer and tells each second how far it is.
func (r *reporter) follow(what string, writer *fleet.Writer, job func() error) error {
	tell := func() {
		nodes, pods := writer.Progress()
		r.line("%s: %d nodes, %d pods", what, nodes, pods)
	}
	done := make(chan error, 1)
	go func() { done <- job() }()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-second.C:
			tell()
		case err := <-done:
			tell()
			return err
		}
	}
}

// stats prints what happened since the last call, and what is now.
func (r *reporter) stats() {
	now, stats, cpu := time.Now(), r.fleet.Stats(), cpuTime()
	span := now.Sub(r.lastAt).Seconds()
	rate := func(now, before int64) float64 { return float64(now-before) / span }
	faulty := 0
	for _, n := range r.fleet.Nodes() {
		if n.Fault().Kind != "" {
			faulty++
		}
	}
	r.line("%.0f scrapes/s  %.2f MB/s  %.0f refused/s  %d in flight  %d connections  %d bad handshakes  %d faulty nodes  cpu %.1f %%",
		rate(stats.Requests, r.last.Requests), rate(stats.Bytes, r.last.Bytes)/1e6, rate(stats.Refused, r.last.Refused),
		stats.InFlight, stats.Connections, stats.BadHandshakes, faulty, 100*(cpu-r.lastCPU).Seconds()/span)
	r.last, r.lastAt, r.lastCPU = stats, now, cpu
}

// cpuTime of this process so far.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
