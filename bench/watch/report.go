// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

// table writes rows of a Markdown table, the first being the head.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', tabwriter.Debug)
	for i, row := range rows {
		_, _ = fmt.Fprintln(w, "\t "+strings.Join(row, "\t ")+"\t")
		if i == 0 {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t---", len(row))+"\t")
		}
	}
	_ = w.Flush()
	_, _ = fmt.Fprintln(out)
}

func reportSetting(out io.Writer, f *flags, w *world) {
	_, _ = fmt.Fprintf(out, "\n%d processors, %s; %d nodes and %d pods, scraped each %v: %.0f points a second. Clients on the same machine.\n\n",
		runtime.NumCPU(), runtime.Version(), f.nodes, len(w.pods), f.interval, float64(f.nodes+len(w.pods))/f.interval.Seconds())
}

func reportMany(out io.Writer, m *many) {
	perWatch := func(rss int64) string {
		return fmt.Sprintf("%.1f KiB", float64(rss-m.rssBefore)/float64(m.watches)/1024)
	}
	d := m.delivering
	_, _ = fmt.Fprintf(out, "%d watches on %d connections\n\n", m.watches, m.connections)
	table(out, [][]string{
		{"figure", ""},
		{"RSS of serving without clients", mebibytes(m.rssBefore)},
		{"RSS a watch, all open", perWatch(m.rssIdle)},
		{fmt.Sprintf("RSS a watch, after %v of events", d.span.Round(time.Second)), perWatch(m.rssAfter)},
		{fmt.Sprintf("first event, opened over %v: p50, p95", m.spread.over), quantiles(&m.spread.first, 0.5, 0.95)},
		{"all that is stored, the same: p50, p95", quantiles(&m.spread.synced, 0.5, 0.95)},
		{fmt.Sprintf("first event, opened at once (all had theirs after %.1f s): p50, p95", m.burst.first.Quantile(1).Seconds()), quantiles(&m.burst.first, 0.5, 0.95)},
		{"kubelet's answer to client: p50, p99, most", quantiles(&d.delivery, 0.5, 0.99, 1)},
		{"events delivered a second", fmt.Sprintf("%.0f", float64(d.events)/d.span.Seconds())},
		{"CPU of serving, and without clients", fmt.Sprintf("%.0f mCPU, %.0f mCPU", d.millicores(d.cpu), m.idle.millicores(m.idle.cpu))},
		{"CPU of serving for an event delivered", fmt.Sprintf("%.1f µs", (d.millicores(d.cpu)-m.idle.millicores(m.idle.cpu))*1000/(float64(d.events)/d.span.Seconds()))},
		{"CPU of this program and its fake kubelets", fmt.Sprintf("%.0f mCPU", d.millicores(d.own))},
		{"the machine was busy", fmt.Sprintf("%.0f %%", 100*d.load)},
	})
}

func quantiles(d interface{ Quantile(float64) time.Duration }, qs ...float64) string {
	var all []string
	for _, q := range qs {
		all = append(all, milliseconds(d.Quantile(q)))
	}
	return strings.Join(all, ", ")
}

func reportComparison(out io.Writer, f *flags, ways []way) {
	_, _ = fmt.Fprintf(out, "%d clients of %d pods each, on %d connections, the same sources in the same run\n\n", f.clients, f.perWatch, f.connections)
	rows := [][]string{{"", "bytes a second", "CPU of serving", "objects sent a second", "kubelet to client p50, p99", "age p50, p99", "the machine was busy"}}
	for _, one := range ways {
		seconds := one.span.Seconds()
		rows = append(rows, []string{
			one.name,
			fmt.Sprintf("%.0f kB", float64(one.bytes)/seconds/1000),
			fmt.Sprintf("%.0f mCPU", one.millicores(one.cpu)),
			fmt.Sprintf("%.0f", float64(one.events)/seconds),
			fmt.Sprintf("%.3f s, %.3f s", one.delivery.Quantile(0.5).Seconds(), one.delivery.Quantile(0.99).Seconds()),
			fmt.Sprintf("%.1f s, %.1f s", one.ages.Quantile(0.5).Seconds(), one.ages.Quantile(0.99).Seconds()),
			fmt.Sprintf("%.0f %%", 100*one.load),
		})
	}
	table(out, rows)
}
