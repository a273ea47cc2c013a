// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command queries sends the serving component the requests of many autoscalers for custom
// metrics, on loopback, with a real Prometheus. See bench/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/metricsbackend/metrics-backend-operator/bench/progress"
)

type flags struct {
	binary                           string
	autoscalers, metrics, apps, pods int
	interval                         time.Duration
	intervals                        int
	timeout                          time.Duration
}

func parse(arguments []string) (*flags, error) {
	f := &flags{}
	fs := pflag.NewFlagSet("queries", pflag.ContinueOnError)
	fs.StringVar(&f.binary, "serving", "../bin/serving", "Binary of the serving component.")
	fs.IntVar(&f.autoscalers, "autoscalers", 1000, "Autoscalers, each of which asks for one metric of one application's pods.")
	fs.IntVar(&f.metrics, "metrics", 100, "Metrics that they share.")
	fs.IntVar(&f.apps, "apps", 10, "Applications, selected by a label.")
	fs.IntVar(&f.pods, "pods", 10, "Pods of each application. Each has all metrics.")
	fs.DurationVar(&f.interval, "interval", 15*time.Second, "How often each autoscaler asks, and how long an evaluation is shared.")
	fs.IntVar(&f.intervals, "intervals", 4, "How long each measurement lasts.")
	fs.DurationVar(&f.timeout, "timeout", 15*time.Minute, "When to give up.")
	if err := fs.Parse(arguments); err != nil {
		return nil, err
	}
	switch {
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case f.autoscalers < 1 || f.metrics < 1 || f.apps < 1 || f.pods < 1 || f.intervals < 1:
		return nil, errors.New("counts must be positive")
	case f.interval < time.Second:
		return nil, errors.New("--interval must be at least 1s")
	}
	return f, nil
}

// Deadline returns the timeout of the load.
func (f *flags) Deadline() time.Duration { return f.timeout }

func main() { progress.Main("queries", parse, run) }

func run(ctx context.Context, f *flags, folder string, out io.Writer, say progress.Say) (err error) {
	e, err := startEnvironment(ctx, f, folder, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop()) }()
	ways, err := e.ways()
	if err != nil {
		return err
	}
	for i := range ways {
		one := &ways[i]
		if err := one.measure(ctx, e, f); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		say("%s: %d requests, p99 %s", one.name, one.took.Len(), one.took.Quantile(0.99).Round(10*time.Microsecond))
	}
	report(out, f, ways)
	return nil
}
