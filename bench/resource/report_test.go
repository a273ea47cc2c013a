// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// line returns the row of a table with this first cell.
func line(table [][]string, name string) []string {
	for _, row := range table {
		if row[0] == name {
			return row[1:]
		}
	}
	return nil
}

func TestComparison(t *testing.T) {
	peer := contestant{name: "metrics-server", kind: kindMetricsServer}
	before, after := contestant{name: "before", kind: kindServing}, contestant{name: "after", kind: kindServing}
	bare := contestant{name: "bare", kind: kindBare}
	all := results{
		"metrics-server": {{cpuIdle: 0.1, listJSON: 0.8, busyIdle: 0.2}, {cpuIdle: 0.12, listJSON: 0.9, busyIdle: 0.3}},
		"before":         {{cpuIdle: 0.05, listJSON: 0.08, busyIdle: 0.1}, {cpuIdle: 0.06, listJSON: 0.09, busyIdle: 0.1}},
		"after":          {{cpuIdle: 0.02, listJSON: 0.08}, {cpuIdle: 0.03, listJSON: 0.18}},
		"bare":           {{cpuIdle: 0.009}, {cpuIdle: 0.011}},
	}
	for name, tc := range map[string]struct {
		field                 []contestant
		head, cpu, json, busy []string
	}{
		"one build": {
			field: []contestant{peer, before, bare},
			head:  []string{"metrics-server", "before", "ratio", "bare", "goal"},
			cpu:   []string{"110 mCPU (100–120)", "55 mCPU (50–60)", "0.50", "10 mCPU (9.0–11)", "≤ 0.2, missed"},
			json:  []string{"850 ms (800–900)", "85 ms (80–90)", "0.10", "", "≤ 0.1"},
			busy:  []string{"25 % (20–30)", "10 % (10–10)", "", "", ""},
		},
		"two builds": {
			field: []contestant{peer, before, after},
			head:  []string{"metrics-server", "before", "ratio", "after", "ratio", "after / before, in pairs", "goal"},
			cpu:   []string{"110 mCPU (100–120)", "55 mCPU (50–60)", "0.50", "25 mCPU (20–30)", "0.23", "0.45 (0.40–0.50)", "≤ 0.2, missed"},
			json:  []string{"850 ms (800–900)", "85 ms (80–90)", "0.10", "130 ms (80–180)", "0.15", "1.50 (1.00–2.00)", "≤ 0.1, missed"},
			busy:  []string{"25 % (20–30)", "10 % (10–10)", "", "", "", "", ""},
		},
		"builds alone": {
			field: []contestant{before, after},
			head:  []string{"before", "after", "after / before, in pairs"},
			cpu:   []string{"55 mCPU (50–60)", "25 mCPU (20–30)", "0.45 (0.40–0.50)"},
			json:  []string{"85 ms (80–90)", "130 ms (80–180)", "1.50 (1.00–2.00)"},
			busy:  []string{"10 % (10–10)", "", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := comparison(tc.field, all, rows)
			want := map[string][]string{"": tc.head, cpuIdle: tc.cpu, listJSON: tc.json, busyIdle: tc.busy}
			got := map[string][]string{}
			for first := range want {
				got[first] = line(table, first)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	row := figure{unit: figures.Ms, goal: 0.1}
	for name, tc := range map[string]struct {
		ours []float64
		want []string
	}{
		"as rounded":   {[]float64{0.1049}, []string{"0.10", "≤ 0.1"}},
		"just missed":  {[]float64{0.1051}, []string{"0.11", "≤ 0.1, missed"}},
		"not measured": {nil, []string{"", "≤ 0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			peers := []float64{1}
			if diff := cmp.Diff(tc.want, []string{row.ratio(tc.ours, peers), row.verdict(tc.ours, peers)}); diff != "" {
				t.Errorf("ratio and goal (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCaption(t *testing.T) {
	well, faulty := group{scenario: scenarios[0]}, group{scenario: scenarios[1]}
	for name, tc := range map[string]struct {
		rounds, scenarioRounds int
		groups                 []group
		want                   string
	}{
		"one round":      {1, 1, []group{well}, "; one round; each request"},
		"rounds":         {3, 1, []group{well}, "; medians of 3 rounds (lowest–highest); each request"},
		"with scenarios": {3, 1, []group{well, faulty}, "; medians of 3 rounds (lowest–highest), one round in the other scenarios; each request"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flags{rounds: tc.rounds, scenarioRounds: tc.scenarioRounds}
			if got := caption(f, &environment{}, tc.groups); !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q in it", got, tc.want)
			}
		})
	}
}

func TestGrouped(t *testing.T) {
	field := []contestant{{name: "metrics-server", kind: kindMetricsServer}, {name: "serving", kind: kindServing}}
	some := func(cpu float64) results {
		return results{"metrics-server": {{cpuIdle: 0.1, getPod: 0.002}}, "serving": {{cpuIdle: cpu, getPod: 0.001}}}
	}
	sick := faulty("failing", 1, "respond with status 500", fleet.Fault{Kind: fleet.InternalError})
	for name, tc := range map[string]struct {
		groups []group
		want   [][]string
	}{
		"one scenario": {
			groups: []group{{scenarios[0], some(0.02)}},
			want: [][]string{
				{"", "metrics-server", "serving", "ratio", "goal"},
				{cpuIdle, "100 mCPU", "20 mCPU", "0.20", "≤ 0.2"},
				{getPod, "2.0 ms", "1.0 ms", "0.50", "≤ 1"},
			},
		},
		"two scenarios": {
			groups: []group{{scenarios[0], some(0.02)}, {sick, some(0.05)}},
			want: [][]string{
				{"", "metrics-server", "serving", "ratio", "goal"},
				{"**healthy**: all kubelets answer at once", "", "", "", ""},
				{cpuIdle, "100 mCPU", "20 mCPU", "0.20", "≤ 0.2"},
				{getPod, "2.0 ms", "1.0 ms", "0.50", "≤ 1"},
				{"**failing-1**: 1 % of the kubelets respond with status 500", "", "", "", ""},
				{cpuIdle, "100 mCPU", "50 mCPU", "0.50", ""},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := grouped(field, tc.groups)
			got = slices.DeleteFunc(got, func(row []string) bool {
				return row[0] != "" && row[0][0] != '*' && row[0] != cpuIdle && row[0] != getPod
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("table (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEachRequestHasARow(t *testing.T) {
	names := map[string]bool{}
	for _, row := range rows {
		names[row.name] = true
	}
	for _, request := range sizes {
		if !names[request] {
			t.Errorf("no row for %q", request)
		}
	}
}
