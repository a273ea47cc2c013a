// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/metricsbackend/metrics-backend-operator/bench/cluster"
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
)

// Metrics of serving that the report reads.
const (
	deliveryLatency = "metrics_api_watch_delivery_latency_seconds"
	encodedPoints   = "metrics_api_encoded_points_total"
)

func reportSetting(out io.Writer, f *flags, e *environment) {
	_, _ = fmt.Fprintf(out, "\n%d processors, %s; %d nodes and %d pods, scraped each %v: %.0f points a second. Clients on the same machine.\n\n",
		runtime.NumCPU(), runtime.Version(), f.nodes, len(e.pods), f.interval, float64(f.nodes+len(e.pods))/f.interval.Seconds())
}

func reportMany(out io.Writer, all []*many) {
	_, _ = fmt.Fprintf(out, "%d watches, by the number of connections that they share\n\n", all[0].watches)
	row := func(name string, value func(*many) string) []string {
		r := []string{name}
		for _, m := range all {
			r = append(r, value(m))
		}
		return r
	}
	perWatch := func(m *many, rss int64) string {
		return fmt.Sprintf("%.1f KiB", float64(rss-m.rssBefore)/float64(m.watches)/1024)
	}
	figures.Table(out, [][]string{
		row("", func(m *many) string { return fmt.Sprintf("%d connections", m.connections) }),
		row("RSS of serving without clients", func(m *many) string { return figures.Mebibytes(m.rssBefore) }),
		row("RSS a watch, all open", func(m *many) string { return perWatch(m, m.rssIdle) }),
		row("RSS a watch, after events", func(m *many) string { return perWatch(m, m.rssAfter) }),
		row("first event, opened evenly: p50, p95", func(m *many) string {
			return fmt.Sprintf("%s (over %.0f s)", figures.Quantiles(&m.spread.first, 0.5, 0.95), m.spread.took.Seconds())
		}),
		row("all that is stored, the same: p50, p95", func(m *many) string { return figures.Quantiles(&m.spread.synced, 0.5, 0.95) }),
		row("first event, opened at once: p50, p95, last", func(m *many) string { return figures.Quantiles(&m.burst.first, 0.5, 0.95, 1) }),
		row("kubelet's answer to client: p50, p99", func(m *many) string { return figures.Quantiles(&m.delivering.delivery, 0.5, 0.99) }),
		row("stored to written, as serving counts: p50, p99", func(m *many) string {
			return histogram(m.before, m.after, deliveryLatency, 0.5, 0.99)
		}),
		row("different points delivered a second", func(m *many) string { return perSecond(m, float64(m.delivering.points)) }),
		row("encodes a second, as serving counts", func(m *many) string {
			return perSecond(m, cluster.Sum(m.after, encodedPoints)-cluster.Sum(m.before, encodedPoints))
		}),
		row("events delivered a second", func(m *many) string { return perSecond(m, float64(m.delivering.events)) }),
		row("CPU of serving; without clients", func(m *many) string {
			return fmt.Sprintf("%.0f mCPU; %.0f mCPU", m.delivering.millicores(m.delivering.cpu), m.idle.millicores(m.idle.cpu))
		}),
		row("CPU of serving for an event delivered", func(m *many) string {
			d := m.delivering
			return fmt.Sprintf("%.1f µs", (d.millicores(d.cpu)-m.idle.millicores(m.idle.cpu))*1000/(float64(d.events)/d.span.Seconds()))
		}),
		row("CPU of this program and its fake kubelets", func(m *many) string {
			return fmt.Sprintf("%.0f mCPU", m.delivering.millicores(m.delivering.own))
		}),
		row("the machine was busy", func(m *many) string { return fmt.Sprintf("%.0f %%", 100*m.delivering.load) }),
	})
}

func perSecond(m *many, n float64) string {
	return fmt.Sprintf("%.0f", n/m.delivering.span.Seconds())
}

// histogram returns upper bounds of quantiles of the observations in between.
func histogram(before, after map[string]*dto.MetricFamily, name string, qs ...float64) string {
	counts, total := map[float64]float64{}, 0.0
	for sign, families := range map[float64]map[string]*dto.MetricFamily{-1: before, 1: after} {
		for _, m := range families[name].GetMetric() {
			total += sign * float64(m.GetHistogram().GetSampleCount())
			for _, b := range m.GetHistogram().GetBucket() {
				counts[b.GetUpperBound()] += sign * float64(b.GetCumulativeCount())
			}
		}
	}
	bounds := slices.Sorted(maps.Keys(counts))
	var found []string
	for _, q := range qs {
		i := slices.IndexFunc(bounds, func(bound float64) bool { return total > 0 && counts[bound] >= q*total })
		if i < 0 {
			found = append(found, "?")
			continue
		}
		found = append(found, fmt.Sprintf("≤ %g ms", 1000*bounds[i]))
	}
	return strings.Join(found, ", ")
}

func reportComparison(out io.Writer, f *flags, ways []way) {
	_, _ = fmt.Fprintf(out, "%d clients of %d pods each, on %d connections, the same sources in the same run\n\n", f.clients, f.perWatch, f.connections[0])
	rows := [][]string{{"", "bytes a second", "CPU of serving", "objects sent a second", "kubelet to client p50, p99", "age p50, p99", "refused with 429", "the machine was busy"}}
	for _, one := range ways {
		seconds := one.span.Seconds()
		rows = append(rows, []string{
			one.name,
			fmt.Sprintf("%.0f kB", float64(one.bytes)/seconds/1000),
			fmt.Sprintf("%.0f mCPU", one.millicores(one.cpu)),
			fmt.Sprintf("%.0f", float64(one.events)/seconds),
			fmt.Sprintf("%.3f s, %.3f s", one.delivery.Quantile(0.5).Seconds(), one.delivery.Quantile(0.99).Seconds()),
			fmt.Sprintf("%.1f s, %.1f s", one.ages.Quantile(0.5).Seconds(), one.ages.Quantile(0.99).Seconds()),
			fmt.Sprint(one.refused),
			fmt.Sprintf("%.0f %%", 100*one.load),
		})
	}
	figures.Table(out, rows)
}
