// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/picture"
)

// ofScale returns the section of a scale with these values of CPU.
func ofScale(nodes int, machine string, theirs, ours float64) section {
	return section{
		Data: record{Nodes: nodes, Pods: 30 * nodes, Machine: machine, Medians: map[string]map[string]float64{
			cpuIdle:   {kindMetricsServer: theirs, kindServing: ours},
			rssSteady: {kindMetricsServer: theirs * 1e9, kindServing: ours * 1e9},
			getPod:    {kindServing: 1},
			busyIdle:  {kindMetricsServer: 1, kindServing: 1},
		}},
		Text: "### " + figures.Thousands(nodes),
	}
}

// faults returns the section of other scenarios of a scale.
func faults(nodes int, text string) section {
	return section{Data: record{Nodes: nodes, Faults: true, Machine: "a"}, Text: text}
}

func TestMerge(t *testing.T) {
	small, middle, large := ofScale(100, "a", 1, 1), ofScale(1000, "a", 2, 2), ofScale(5000, "a", 3, 3)
	for name, tc := range map[string]struct{ old, measured, want []section }{
		"first":           {measured: []section{middle}, want: []section{middle}},
		"another scale":   {old: []section{small, large}, measured: []section{middle}, want: []section{small, middle, large}},
		"the same scale":  {old: []section{small, middle}, measured: []section{ofScale(1000, "a", 9, 9)}, want: []section{small, ofScale(1000, "a", 9, 9)}},
		"only healthy":    {old: []section{small, faults(100, "f")}, measured: []section{small}, want: []section{small, faults(100, "f")}},
		"only the others": {old: []section{small, middle}, measured: []section{faults(100, "f")}, want: []section{small, faults(100, "f"), middle}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, merge(tc.old, tc.measured)); diff != "" {
				t.Errorf("sections (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBars(t *testing.T) {
	want := []picture.Ratio{{Name: cpuIdle, Value: 0.5, Goal: 0.2}, {Name: rssSteady, Value: 0.5, Goal: 0.25}}
	if diff := cmp.Diff(want, bars(ofScale(100, "a", 2, 1).Data)); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
}

func TestDrawn(t *testing.T) {
	for name, tc := range map[string]struct {
		all    []section
		ratios int
		same   []int
	}{
		"nothing":                {},
		"no healthy kubelets":    {all: []section{faults(100, "")}},
		"that of the goals":      {all: []section{ofScale(100, "a", 1, 1), ofScale(1000, "a", 1, 1), ofScale(5000, "a", 1, 1)}, ratios: 1000, same: []int{100, 1000, 5000}},
		"the largest":            {all: []section{ofScale(20, "a", 1, 1), faults(20, ""), ofScale(100, "a", 1, 1)}, ratios: 100, same: []int{20, 100}},
		"not of another machine": {all: []section{ofScale(100, "b", 1, 1), ofScale(1000, "a", 1, 1)}, ratios: 1000, same: []int{1000}},
	} {
		t.Run(name, func(t *testing.T) {
			ratios, same := drawn(tc.all)
			var nodes []int
			for _, r := range same {
				nodes = append(nodes, r.Nodes)
			}
			if ratios.Nodes != tc.ratios {
				t.Errorf("ratios of %d nodes, want %d", ratios.Nodes, tc.ratios)
			}
			if diff := cmp.Diff(tc.same, nodes); diff != "" {
				t.Errorf("growth (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExponent(t *testing.T) {
	for name, tc := range map[string]struct {
		points []point
		want   float64
		ok     bool
	}{
		"linear":            {[]point{{100, 1}, {1000, 3}, {5000, 15}}, 1, true},
		"constant":          {[]point{{1000, 3}, {5000, 3}}, 0, true},
		"quadratic":         {[]point{{1000, 1}, {5000, 25}}, 2, true},
		"one not measured":  {[]point{{100, 1}, {1000, 3}}, 0, false},
		"none was measured": {nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := exponent(tc.points, growthFrom, growthTo)
			if ok != tc.ok || !cmp.Equal(tc.want, got, cmpopts.EquateApprox(0, 1e-9)) {
				t.Errorf("exponent %g, %t, want %g, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}

// The document has old and new sections and the picture after each run.
func TestWrite(t *testing.T) {
	folder := t.TempDir()
	f := &flags{document: filepath.Join(folder, "performance.md"), plot: filepath.Join(folder, "images.png")}
	if err := os.WriteFile(f.document, []byte("# Title\n\n<!-- bench-resource: begin -->\n<!-- bench-resource: end -->\n\nThe rest.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []section{ofScale(1000, "a", 0.1, 0.02), ofScale(5000, "a", 0.5, 0.08)} {
		if err := write(f, []section{s}); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(f.document)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "![") || strings.HasPrefix(line, "The rest") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		"# Title", "## metrics.k8s.io compared with metrics-server",
		"![Ratios to metrics-server with the goals, and growth of CPU and RSS with the number of nodes](images.png)",
		"### 1,000", "### 5,000", "The rest.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
	picture, err := os.ReadFile(f.plot)
	if err != nil || !strings.HasPrefix(string(picture), "\x89PNG") {
		t.Errorf("the picture is %.10q, %v", picture, err)
	}
}
