// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/document"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
)

// Figures of a measurement, by their names in the table. Durations are in seconds, memory in
// bytes, and CPU in processors.
const (
	requested     = "requests"
	failed        = "failed requests"
	p50           = "latency, p50"
	p95           = "latency, p95"
	p99           = "latency, p99"
	slowest       = "latency, slowest"
	queries       = "Prometheus queries per interval"
	cpu           = "CPU"
	rss           = "RSS"
	cpuPrometheus = "CPU of Prometheus"
	cpuAPIServer  = "CPU of kube-apiserver"
	cpuLoad       = "CPU of the clients"
	busy          = "machine busy"
)

// row is a row of the table for each number of autoscalers.
type row struct {
	name string
	unit figures.Unit
	// plain rows have no ratio.
	plain bool
}

var rows = []row{
	{requested, figures.Count, true},
	{failed, figures.Count, true},
	{p50, figures.Ms, false},
	{p95, figures.Ms, false},
	{p99, figures.Ms, false},
	{slowest, figures.Ms, false},
	{queries, figures.Count, false},
	{cpu, figures.MilliCPU, false},
	{rss, figures.MiB, false},
	{cpuPrometheus, figures.MilliCPU, false},
	{cpuAPIServer, figures.MilliCPU, false},
	{cpuLoad, figures.MilliCPU, true},
	{busy, figures.Percent, true},
}

// values are the figures of one measurement.
type values map[string]float64

// results are the values of each contestant by round, for a number of autoscalers.
type results struct {
	autoscalers int
	rounds      map[string][]values
}

// of returns a figure's values in the rounds that have it.
func (r results) of(contestant, figure string) []float64 {
	var all []float64
	for _, round := range r.rounds[contestant] {
		if v, ok := round[figure]; ok {
			all = append(all, v)
		}
	}
	return all
}

// table returns the figures of a kind. The ratio is that of serving to the column before it.
func (k kind) table(field []contestant, all []results) [][]string {
	field = k.of(field)
	head := []string{""}
	for _, one := range field {
		head = append(head, one.column)
	}
	compared := len(field) > 1 && field[len(field)-1].name == servingName
	if compared {
		head = append(head, "ratio", "goal")
	}
	table := [][]string{head}
	for _, r := range all {
		title := make([]string, len(head))
		title[0] = "**" + figures.Thousands(r.autoscalers) + " autoscalers**"
		table = append(table, title)
		for _, row := range rows {
			cells := []string{row.name}
			for _, one := range field {
				cells = append(cells, row.unit.Spread(r.of(one.name, row.name)))
			}
			if compared {
				ratio, ok := row.ratio(r, field[len(field)-2].name)
				cells = append(cells, "", "")
				if ok {
					cells[len(cells)-2], cells[len(cells)-1] = figures.Quotient.Format(ratio), figures.Verdict(ratio, k.goals[r.autoscalers][row.name])
				}
			}
			table = append(table, cells)
		}
	}
	return table
}

// ratio returns that of serving to a peer, and false if there is none.
func (row row) ratio(r results, peer string) (float64, bool) {
	ours, peers := r.of(servingName, row.name), r.of(peer, row.name)
	if row.plain || len(ours) == 0 || len(peers) == 0 || figures.Median(peers) == 0 {
		return 0, false
	}
	return figures.Median(ours) / figures.Median(peers), true
}

// caption says what was measured, where and when.
func caption(f *flags) string {
	rounds := ""
	if f.rounds > 1 {
		rounds = fmt.Sprintf(", medians of %d rounds (lowest–highest)", f.rounds)
	}
	return fmt.Sprintf("%s, %s, %s; each autoscaler sends a request every %v, for %d intervals%s. "+
		"%s custom metrics of %d applications with %d pods each, %s external metrics of %d queues each.",
		machine.Name(), runtime.Version(), time.Now().Format(time.DateOnly), f.interval, f.intervals, rounds,
		figures.Thousands(f.metrics), f.selected, f.pods, figures.Thousands(f.metrics), f.selected)
}

func report(out io.Writer, f *flags, field []contestant, all map[string][]results) {
	_, _ = fmt.Fprintf(out, "\n%s\n", caption(f))
	for _, k := range kinds {
		_, _ = fmt.Fprintf(out, "\n%s\n\n", k.name)
		figures.Table(out, k.table(field, all[k.name]))
	}
}

// blockName is in the comments between which results are written.
const blockName = "queries"

const introduction = `## Autoscalers compared with prometheus-adapter

The same autoscalers request the same metrics, by the same rules, from one process at a time, with the same Prometheus and the same
kube-apiserver. Requests do not go through kube-apiserver, and fail if there is no response within an interval. Latency is that of
successful requests, with p99 of at least 200. Ratios are serving's to the column before it.

- prometheus-adapter lists pods at kube-apiserver for each request for a custom metric, by default at most 5 per second. With more
  requests than that, requests wait until they fail; the HPA controller, which by default waits for five responses at a time, would be
  late instead. The second column is with a raised limit.
- The first 10 autoscalers request different metrics, with a query each. Further ones request the same metrics with other selectors,
  and share serving's queries.`

// recordable tells whether the results are written: those of all contestants with the default
// load.
func recordable(f *flags, field []contestant) bool {
	return len(field) == len(contestants) && f.usual
}

// content returns a document with the results of a run.
func content(old string, caption string, field []contestant, all map[string][]results) (string, error) {
	text := introduction + "\n\n" + caption
	for _, k := range kinds {
		text += "\n\n### " + k.name + "\n\n" + strings.Trim(figures.Markdown(k.table(field, all[k.name])), "\n")
	}
	return document.Replace(old, blockName, text)
}

// write writes the results into the document.
func write(f *flags, field []contestant, all map[string][]results) error {
	old, err := os.ReadFile(f.document)
	if err != nil {
		return fmt.Errorf("read the document to which results are written: %w", err)
	}
	picture, err := filepath.Rel(filepath.Dir(f.document), f.plot)
	if err != nil {
		return fmt.Errorf("name the picture in %s: %w", f.document, err)
	}
	shown := "![Ratios to prometheus-adapter with the goals](" + filepath.ToSlash(picture) + ")\n\n" + caption(f)
	changed, err := content(string(old), shown, field, all)
	if err != nil {
		return fmt.Errorf("write results into %s: %w", f.document, err)
	}
	if err := drawPicture(f.plot, field, all); err != nil {
		return err
	}
	if err := os.WriteFile(f.document, []byte(changed), 0o644); err != nil { //nolint:gosec // A document.
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}

// of returns the contestants that are measured for a kind.
func (k kind) of(field []contestant) []contestant {
	return slices.DeleteFunc(slices.Clone(field), func(c contestant) bool { return k.withoutRaised && c.name == adapterRaised })
}
