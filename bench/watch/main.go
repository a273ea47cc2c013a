// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command watch runs load tests of the serving component with watches, on loopback, and
// compares watching with polling. See bench/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

type flags struct {
	binary                         string
	nodes, podsPerNode, perWatch   int
	interval                       time.Duration
	watches, clients               int
	connections                    []int
	connectOver                    time.Duration
	idle, warmup, measure, compare time.Duration
	pollIntervals                  []time.Duration
	masters                        bool
	plot, profiles                 string
	timeout                        time.Duration
	skipMany, skipComparison       bool
	skipProxied                    bool
}

// namespaces so that one application of one namespace has perWatch pods.
func (f *flags) namespaces() int {
	return max(1, f.nodes*f.podsPerNode/appsPerNamespace/f.perWatch)
}

func parse(arguments []string) (*flags, error) {
	f := &flags{}
	fs := pflag.NewFlagSet("watch", pflag.ContinueOnError)
	fs.StringVar(&f.binary, "serving", "../bin/serving", "Binary of the serving component.")
	fs.IntVar(&f.nodes, "nodes", 1000, "Number of fake kubelets.")
	fs.IntVar(&f.podsPerNode, "pods-per-node", 30, "Pods of each, with two containers.")
	fs.DurationVar(&f.interval, "interval", 15*time.Second, "How often a kubelet is scraped. Pods over interval is how many points are stored a second.")
	fs.IntVar(&f.watches, "watches", 10000, "Watches that are open at once.")
	fs.IntVar(&f.perWatch, "pods-per-watch", 20, "Pods that each client selects, by namespace and label.")
	fs.IntSliceVar(&f.connections, "connections", []int{10, 40}, "HTTP/2 connections that the clients share, each with a user of its own. Of several numbers, each is measured.")
	fs.DurationVar(&f.connectOver, "connect-over", 10*time.Second, "Time over which the watches are opened. A second connect opens them all at once.")
	fs.DurationVar(&f.warmup, "warmup", 15*time.Second, "Time after readiness before anything is measured.")
	fs.DurationVar(&f.idle, "idle", 15*time.Second, "Length of the measurement without clients.")
	fs.DurationVar(&f.measure, "measure", 30*time.Second, "Length of the measurement with all watches.")
	fs.IntVar(&f.clients, "clients", 1000, "Clients that watch, and then poll, in the comparison.")
	fs.DurationVar(&f.compare, "compare", 30*time.Second, "Length of each measurement of the comparison.")
	fs.DurationSliceVar(&f.pollIntervals, "poll", []time.Duration{15 * time.Second, 5 * time.Second, time.Second}, "Intervals of polling.")
	fs.BoolVar(&f.masters, "masters", false, "Clients are of system:masters, whom serving admits without asking kube-apiserver.")
	fs.BoolVar(&f.skipMany, "skip-many", false, "Leave the many watches out.")
	fs.BoolVar(&f.skipComparison, "skip-comparison", false, "Leave the comparison out.")
	fs.BoolVar(&f.skipProxied, "skip-proxied", false, "Leave the clients of kube-apiserver out.")
	fs.StringVar(&f.plot, "plot", "", "Where to write the comparison's picture, PNG.")
	fs.StringVar(&f.profiles, "profiles", "", "Folder for profiles of serving; they cost it a few percent. Empty for none.")
	fs.DurationVar(&f.timeout, "timeout", time.Hour, "When to give up.")
	if err := fs.Parse(arguments); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case f.nodes < 1 || f.podsPerNode < 1 || f.perWatch < 1 || f.watches < 1 || f.clients < 1 || len(f.connections) == 0:
		return nil, errors.New("counts must be positive")
	case f.interval < time.Second || f.measure < time.Second || f.compare < time.Second || f.idle < time.Second:
		return nil, errors.New("--interval, --idle, --measure and --compare must be at least 1s")
	}
	for _, n := range f.connections {
		if n < 1 || f.watches%n != 0 || f.clients%n != 0 {
			return nil, fmt.Errorf("--watches and --clients must be multiples of --connections, %d", n)
		}
	}
	for _, interval := range f.pollIntervals {
		if interval < 100*time.Millisecond {
			return nil, fmt.Errorf("--poll %v: must be at least 100ms", interval)
		}
	}
	return f, nil
}

// Deadline returns the timeout of the load.
func (f *flags) Deadline() time.Duration { return f.timeout }

func main() { progress.Main("watch", parse, run) }

func run(ctx context.Context, f *flags, folder string, out io.Writer, say progress.Say) (err error) {
	if err := checkBinary(f.binary); err != nil {
		return err
	}
	e, err := startEnvironment(ctx, f, folder, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	reportSetting(out, f, e)
	if !f.skipMany {
		var all []*many
		for _, connections := range f.connections {
			m, err := runMany(ctx, e, f, connections, say)
			if err != nil {
				return fmt.Errorf("%d watches on %d connections: %w", f.watches, connections, err)
			}
			all = append(all, m)
		}
		reportMany(out, all)
	}
	if !f.skipComparison {
		ways, err := runComparison(ctx, e, f, say)
		if err != nil {
			return fmt.Errorf("comparison: %w", err)
		}
		reportComparison(out, f, ways)
		if f.plot != "" {
			if err := plotComparison(f, ways); err != nil {
				return err
			}
			say("the picture is %s", filepath.Clean(f.plot))
		}
	}
	if !f.skipProxied {
		idle, all, ages, err := runProxied(ctx, e, f, say)
		if err != nil {
			return fmt.Errorf("clients of kube-apiserver: %w", err)
		}
		reportProxied(out, f, idle, all)
		reportAges(out, f, ages)
	}
	return nil
}
