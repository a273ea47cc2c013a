// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
)

func report(out io.Writer, f *flags, ways []way) {
	_, _ = fmt.Fprintf(out, "\n%d processors, %s; %d autoscalers ask for %d metrics of %d applications with %d pods each, every %v, for %d intervals. All on one machine.\n\n",
		runtime.NumCPU(), runtime.Version(), f.autoscalers, f.metrics, f.apps, f.pods, f.interval, f.intervals)
	rows := [][]string{{"", "requests", "p50, p95, p99", "slowest", "queries of Prometheus an interval", "CPU of serving", "RSS of serving", "the machine was busy"}}
	for i := range ways {
		one := &ways[i]
		rows = append(rows, []string{
			one.name,
			fmt.Sprint(one.took.Len()),
			figures.Quantiles(&one.took, 0.5, 0.95, 0.99),
			figures.Milliseconds(one.took.Quantile(1)),
			fmt.Sprintf("%.1f", float64(one.queries)*f.interval.Seconds()/one.span.Seconds()),
			fmt.Sprintf("%.0f mCPU", 1000*one.cpu.Seconds()/one.span.Seconds()),
			figures.Mebibytes(one.rss),
			fmt.Sprintf("%.0f %%", 100*one.busy),
		})
	}
	figures.Table(out, rows)
}
