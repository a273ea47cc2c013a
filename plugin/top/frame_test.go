// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

const mebi = 1 << 20

// pods is a table in which load-0 rises, quiet-… is steady, and stuck has no new sample.
func pods(count int) *table {
	t := newTable()
	for i := range 20 {
		at := now.Add(time.Duration(i-20)*15*time.Second + 11*time.Second)
		put := func(namespace, name string, cpu, memory int64, at time.Time) {
			i := id{object: namespace + "/" + name, namespace: namespace, name: name}
			t.apply(change{object: i.object, samples: []sample{{i, usage{cpu, memory * mebi}, at}}})
		}
		put("shop", "load-0", int64(i*i), 100+int64(i), at)
		for n := range count {
			put("shop", fmt.Sprintf("quiet-6bc9555b56-%05d", n), 5, 20, at)
		}
		if i < 12 {
			put("kube-system", "stuck-with-a-very-long-name-that-goes-on-and-on-7877b7bfdc-rqjs2", 50, 7000, at)
		}
	}
	return t
}

func nodes() *table {
	t := newTable()
	for i := range 10 {
		for name, cpu := range map[string]int64{"node-a": 1000 + int64(i%3)*700, "node-b": 150} {
			t.apply(change{object: name, samples: []sample{{id{object: name, name: name}, usage{cpu, 3000 * mebi}, now.Add(time.Duration(i-10) * 15 * time.Second)}}})
		}
	}
	return t
}

func watching() notice {
	return notice{status: client.Status{Mode: client.Watching, Version: "v1", Synced: true}, newest: 4 * time.Second}
}

func TestFrame(t *testing.T) {
	polling := notice{
		status: client.Status{Mode: client.Polling, Version: "v1beta1", Synced: true, PollingReason: errors.New("the server names no watch for pods in metrics.k8s.io/v1beta1")},
		newest: 21 * time.Second, interval: 15 * time.Second,
	}
	lost := notice{
		status: client.Status{Mode: client.Starting, Synced: true, Err: errors.New("listing /apis/metrics.k8s.io/v1/pods: connection\nrefused\x1b[2J")},
		newest: 81 * time.Second, lastContact: 75 * time.Second,
	}
	inPods := view{title: "pods in all namespaces", by: byCPU, namespaces: true, table: pods(3), notice: watching(), symbols: blocks}
	inNodes := view{
		title: "nodes", by: byCPU, percentages: true, table: nodes(), notice: watching(), symbols: blocks,
		available: map[string]usage{"node-a": {4000, 16000 * mebi}},
	}
	with := func(v view, change func(*view)) view { change(&v); return v }
	for name, c := range map[string]struct {
		view          view
		width, height int
	}{
		"pods":              {inPods, 140, 12},
		"pods-80":           {inPods, 80, 12},
		"pods-50":           {inPods, 50, 12},
		"pods-20":           {inPods, 20, 6},
		"pods-1":            {inPods, 1, 1},
		"ascii":             {with(inPods, func(v *view) { v.symbols = ascii }), 100, 12},
		"by-memory":         {with(inPods, func(v *view) { v.by = byMemory }), 100, 12},
		"no-headers":        {with(inPods, func(v *view) { v.noHeaders = true }), 100, 12},
		"polling":           {with(inPods, func(v *view) { v.notice = polling }), 120, 12},
		"lost":              {with(inPods, func(v *view) { v.notice = lost }), 140, 12},
		"more-than-lines":   {with(inPods, func(v *view) { v.table = pods(50) }), 100, 12},
		"scrolled":          {with(inPods, func(v *view) { v.table = pods(50); v.scroll = 30 }), 100, 12},
		"scrolled-past-end": {with(inPods, func(v *view) { v.table = pods(50); v.scroll = 500 }), 100, 12},
		"nodes":             {inNodes, 140, 12},
		"nodes-80":          {inNodes, 80, 12},
		"nodes-no-list": {with(inNodes, func(v *view) {
			v.available = nil
			v.notice.problem = "no percentages without the permission to list nodes"
		}), 100, 12},
		"nothing":    {with(inPods, func(v *view) { v.table = newTable(); v.notice.newest = -1 }), 100, 12},
		"containers": {with(inPods, func(v *view) { v.containers = true }), 100, 12},
	} {
		t.Run(name, func(t *testing.T) {
			c.view.now, c.view.stale = now, time.Minute
			lines := c.view.frame(c.width, c.height)
			var text strings.Builder
			for _, l := range lines {
				text.WriteString(map[output.Tone]string{output.Plain: "  ", output.Strong: "* ", output.Faint: ". ", output.Warning: "! "}[l.Tone] + l.Text + "|\n")
				if got := utf8.RuneCountInString(l.Text); got > c.width {
					t.Errorf("a line of %d columns: %q", got, l.Text)
				}
			}
			if len(lines) > c.height {
				t.Errorf("%d lines", len(lines))
			}
			plugincluster.Golden(t, name+".txt", text.String())
		})
	}
}

// Whatever the size, a frame fits, and does not panic.
func TestFrameFits(t *testing.T) {
	for _, v := range []view{
		{table: pods(3), namespaces: true, symbols: blocks},
		{table: nodes(), percentages: true, symbols: ascii},
		{table: newTable(), containers: true, namespaces: true, symbols: blocks},
	} {
		for width := 1; width < 200; width++ {
			for _, height := range []int{1, 2, 3, 4, 5, 8, 10, 40} {
				lines := v.frame(width, height)
				if len(lines) > height {
					t.Fatalf("%d lines at %dx%d", len(lines), width, height)
				}
				for _, l := range lines {
					if utf8.RuneCountInString(l.Text) > width {
						t.Fatalf("at %dx%d: %q", width, height, l.Text)
					}
				}
			}
		}
	}
}

func TestSparkline(t *testing.T) {
	for name, c := range map[string]struct {
		values []int64
		width  int
		ramp   []rune
		want   string
	}{
		"none":           {nil, 4, blocks.ramp, "    "},
		"rising":         {[]int64{0, 1, 2, 3, 4, 5, 6, 7}, 8, blocks.ramp, "▁▂▃▄▅▆▇█"},
		"in ASCII":       {[]int64{0, 1, 2, 3, 4, 5, 6, 7}, 8, ascii.ramp, "_.-:=+*#"},
		"short":          {[]int64{7, 7}, 4, blocks.ramp, "  ██"},
		"the newest":     {[]int64{100, 1, 2}, 2, blocks.ramp, "▅█"},
		"zeros":          {[]int64{0, 0}, 2, blocks.ramp, "▁▁"},
		"large":          {[]int64{1 << 62, 1 << 61}, 2, blocks.ramp, "█▅"},
		"negative, once": {[]int64{-5, 5}, 2, blocks.ramp, "▁█"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sparkline(c.values, c.width, c.ramp); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestSymbolsFor(t *testing.T) {
	for name, c := range map[string]struct {
		environment map[string]string
		want        symbols
	}{
		"none":              {nil, ascii},
		"UTF-8":             {map[string]string{"LANG": "de_DE.UTF-8"}, blocks},
		"utf8":              {map[string]string{"LC_CTYPE": "C.utf8"}, blocks},
		"C":                 {map[string]string{"LANG": "C"}, ascii},
		"LC_ALL goes first": {map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, ascii},
		"an empty one":      {map[string]string{"LC_ALL": "", "LANG": "en_US.UTF-8"}, blocks},
	} {
		t.Run(name, func(t *testing.T) {
			if got := symbolsFor(func(v string) string { return c.environment[v] }); got.cut != c.want.cut {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestRender: nothing is erased after a text, since the cursor is on the last character of one
// that is as wide as the terminal.
func TestRender(t *testing.T) {
	got := render([]output.Cell{{Text: "a"}, {Text: "b", Tone: output.Strong}, {Text: "c"}}, true)
	if diff := cmp.Diff("\x1b[H\x1b[Ka\r\n\x1b[K\x1b[1mb\x1b[0m\r\n\x1b[Jc", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
