// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
)

func TestTable(t *testing.T) {
	all := []results{
		{autoscalers: 10, rounds: map[string][]values{
			adapterDefaults: {{p50: 0.004, requested: 20, cpu: 0.04}},
			adapterRaised:   {{p50: 0.005, requested: 20, cpu: 0.04}},
			servingName:     {{p50: 0.002, requested: 20, cpu: 0.06}},
		}},
		{autoscalers: 1000, rounds: map[string][]values{
			adapterDefaults: {{requested: 2000, failed: 2000}, {requested: 2000, failed: 1990, p50: 12}},
			adapterRaised:   {{p50: 0.008, requested: 2000}, {p50: 0.010, requested: 2000}},
			servingName:     {{p50: 0.002, requested: 2000}, {p50: 0.004, requested: 2000}},
		}},
	}
	for name, tc := range map[string]struct {
		kind  kind
		field []contestant
		want  [][]string
	}{
		"custom metrics": {
			kind: kinds[0], field: contestants,
			want: [][]string{
				{"", "prometheus-adapter", "prometheus-adapter, `--client-qps=1000`", "serving", "ratio", "goal"},
				{"**10 autoscalers**", "", "", "", "", ""},
				{requested, "20", "20", "20", "", ""},
				{p50, "4.0 ms", "5.0 ms", "2.0 ms", "0.40", ""},
				{cpu, "40 mCPU", "40 mCPU", "60 mCPU", "1.50", "≤ 1, missed"},
				{"**1,000 autoscalers**", "", "", "", "", ""},
				{requested, "2,000 (2,000–2,000)", "2,000 (2,000–2,000)", "2,000 (2,000–2,000)", "", ""},
				{p50, "12000 ms", "9.0 ms (8.0–10)", "3.0 ms (2.0–4.0)", "0.33", ""},
				{cpu, "", "", "", "", ""},
			},
		},
		"external metrics": {
			kind: kinds[1], field: contestants,
			want: [][]string{
				{"", "prometheus-adapter", "serving", "ratio", "goal"},
				{"**10 autoscalers**", "", "", "", ""},
				{requested, "20", "20", "", ""},
				{p50, "4.0 ms", "2.0 ms", "0.50", ""},
				{cpu, "40 mCPU", "60 mCPU", "1.50", "≤ 1, missed"},
				{"**1,000 autoscalers**", "", "", "", ""},
				{requested, "2,000 (2,000–2,000)", "2,000 (2,000–2,000)", "", ""},
				{p50, "12000 ms", "3.0 ms (2.0–4.0)", "0.00", ""},
				{cpu, "", "", "", ""},
			},
		},
		"serving alone": {
			kind: kinds[0], field: contestants[2:],
			want: [][]string{
				{"", "serving"},
				{"**10 autoscalers**", ""},
				{requested, "20"},
				{p50, "2.0 ms"},
				{cpu, "60 mCPU"},
				{"**1,000 autoscalers**", ""},
				{requested, "2,000 (2,000–2,000)"},
				{p50, "3.0 ms (2.0–4.0)"},
				{cpu, ""},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := slices.DeleteFunc(tc.kind.table(tc.field, all), func(row []string) bool {
				return row[0] != "" && row[0][0] != '*' && row[0] != requested && row[0] != p50 && row[0] != cpu
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestContent(t *testing.T) {
	all := map[string][]results{}
	for _, k := range kinds {
		all[k.name] = []results{{autoscalers: 10, rounds: map[string][]values{servingName: {{p50: 0.002}}}}}
	}
	const empty = "# Title\n\n<!-- bench-queries: begin -->\n<!-- bench-queries: end -->\n"
	once, err := content(empty, "where and when", contestants, all)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := content(once, "where and when", contestants, all)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Errorf("written again (-once +twice):\n%s", diff)
	}
	var heads []string
	for line := range strings.Lines(once) {
		if strings.HasPrefix(line, "### ") {
			heads = append(heads, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff([]string{"### Custom metrics", "### External metrics"}, heads); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
	if _, err := content("# Title\n", "where and when", contestants, all); err == nil {
		t.Error("a document without the comments is accepted")
	}
}

func TestLatencies(t *testing.T) {
	for name, tc := range map[string]struct {
		successful int
		failures   []error
		want       values
	}{
		"none":   {0, []error{io.EOF}, values{requested: 1, failed: 1}},
		"few":    {199, []error{io.EOF}, values{requested: 200, failed: 1, p50: 0.1, p95: 0.19, slowest: 0.199}},
		"enough": {200, nil, values{requested: 200, failed: 0, p50: 0.1, p95: 0.19, p99: 0.198, slowest: 0.2}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &load{failures: tc.failures}
			for i := range tc.successful {
				l.took.Add(time.Duration(i+1) * time.Millisecond)
			}
			got := values{}
			l.settle(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("figures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCosts(t *testing.T) {
	began := time.Unix(1000, 0)
	before := costs{at: began, server: time.Second, source: 2 * time.Second, plane: 3 * time.Second, load: 4 * time.Second, machine: machine.Load{Busy: time.Second, All: 10 * time.Second}}
	after := costs{
		at: began.Add(10 * time.Second), server: 2 * time.Second, source: 4 * time.Second, plane: 8 * time.Second, load: 4 * time.Second,
		machine: machine.Load{Busy: 6 * time.Second, All: 30 * time.Second},
	}
	want := values{cpu: 0.1, cpuPrometheus: 0.2, cpuAPIServer: 0.5, cpuLoad: 0, busy: 0.25}
	if diff := cmp.Diff(want, after.since(before)); diff != "" {
		t.Errorf("figures (-want +got):\n%s", diff)
	}
}
