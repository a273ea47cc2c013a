// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
	"github.com/metricsbackend/metrics-backend-operator/bench/machine"
)

// group is what was measured in one scenario.
type group struct {
	scenario scenario
	results  results
}

// caption says what was measured, where and when.
func caption(f *flags, e *environment, groups []group) string {
	return fmt.Sprintf("%s, %s, %s; %d nodes, %d pods, %d containers, scraped each %v, on loopback with one %s; "+
		"%s%s; each request %d times a round on a kept HTTP/2 connection.",
		machine.Name(), runtime.Version(), time.Now().Format(time.DateOnly), f.nodes, e.pods, e.pods*f.containers, f.interval, apiserverName(f), measured(f.roundsOf(groups[0].scenario)), others(f, groups), f.repetitions)
}

func report(out io.Writer, f *flags, e *environment, field []contestant, groups []group) {
	_, _ = fmt.Fprintf(out, "\n%s\n\n", caption(f, e, groups))
	figures.Table(out, grouped(field, groups))
	if hasServer(field) {
		_, _ = fmt.Fprintf(out, "Size of the bodies\n\n")
		figures.Table(out, bodies(field, groups[0].results))
	}
}

func apiserverName(f *flags) string {
	if f.standIn() {
		return "in-memory stand-in of kube-apiserver"
	}
	return "kube-apiserver"
}

// others says how many rounds the scenarios after the first had, if that differs.
func others(f *flags, groups []group) string {
	if len(groups) == 1 || f.roundsOf(groups[1].scenario) == f.roundsOf(groups[0].scenario) {
		return ""
	}
	return ", " + measured(f.scenarioRounds) + " in the other scenarios"
}

// measured says what the figures of a number of rounds are.
func measured(rounds int) string {
	if rounds == 1 {
		return "one round"
	}
	return fmt.Sprintf("medians of %d rounds (lowest–highest)", rounds)
}

// grouped returns the table of all scenarios, with their names if there are several.
func grouped(field []contestant, groups []group) [][]string {
	if len(groups) == 1 {
		return comparison(field, groups[0].results, rows)
	}
	return titled(field, groups)
}

// titled returns the table of scenarios, each with a row with its name before its figures.
func titled(field []contestant, groups []group) [][]string {
	var table [][]string
	for _, g := range groups {
		selected := rows
		if g.scenario.name != healthy {
			selected = slices.DeleteFunc(slices.Clone(rows), func(row figure) bool { return !row.everywhere })
			for j := range selected {
				selected[j].goal = 0 // goals are those of healthy kubelets
			}
		}
		one := comparison(field, g.results, selected)
		if table == nil {
			table = [][]string{one[0]}
		}
		title := make([]string, len(table[0]))
		title[0] = fmt.Sprintf("**%s**: %s", g.scenario.name, g.scenario.description)
		table = append(append(table, title), one[1:]...)
	}
	return table
}

// hasServer tells whether any contestant answers requests.
func hasServer(field []contestant) bool {
	return slices.ContainsFunc(field, func(c contestant) bool { return c.kind != kindBare })
}

// comparison returns the table of figures. Contestants are in the order of their columns.
//
// The ratio is that of the medians to metrics-server's. Builds of serving after the first
// are also compared with the first round by round, since neighboring measurements share
// what else runs on the machine.
func comparison(field []contestant, all results, rows []figure) [][]string {
	var builds []string
	peer := ""
	for _, one := range field {
		switch one.kind {
		case kindMetricsServer:
			peer = one.name
		case kindServing:
			builds = append(builds, one.name)
		}
	}
	head := []string{""}
	for _, one := range field {
		head = append(head, one.name)
		if one.kind != kindServing {
			continue
		}
		if peer != "" {
			head = append(head, "ratio")
		}
		if one.name != builds[0] {
			head = append(head, one.name+" / "+builds[0]+", in pairs")
		}
	}
	withGoals := peer != "" && len(builds) > 0
	if withGoals {
		head = append(head, "goal")
	}
	table := [][]string{head}
	for _, row := range rows {
		cells := []string{row.name}
		for _, one := range field {
			cells = append(cells, row.unit.Spread(all.of(one.name, row.name)))
			if one.kind != kindServing {
				continue
			}
			if peer != "" {
				cells = append(cells, row.ratio(all.of(one.name, row.name), all.of(peer, row.name)))
			}
			if one.name != builds[0] {
				cells = append(cells, row.pairs(all.ratios(one.name, builds[0], row.name)))
			}
		}
		if withGoals {
			cells = append(cells, row.verdict(all.of(builds[len(builds)-1], row.name), all.of(peer, row.name)))
		}
		table = append(table, cells)
	}
	return table
}

func (row figure) ratio(ours, peers []float64) string {
	if row.plain || len(ours) == 0 || len(peers) == 0 || figures.Median(peers) == 0 {
		return ""
	}
	return figures.Quotient.Format(figures.Median(ours) / figures.Median(peers))
}

func (row figure) pairs(ratios []float64) string {
	if row.plain {
		return ""
	}
	return figures.Quotient.Spread(ratios)
}

// verdict formats the goal, and whether the last build of serving misses it.
func (row figure) verdict(ours, peers []float64) string {
	if len(ours) == 0 || len(peers) == 0 {
		return figures.Verdict(0, row.goal)
	}
	return figures.Verdict(figures.Median(ours)/figures.Median(peers), row.goal)
}

// bodies returns the table of the sizes of responses.
func bodies(field []contestant, all results) [][]string {
	head := []string{""}
	for _, one := range field {
		if one.kind != kindBare {
			head = append(head, one.name)
		}
	}
	table := [][]string{head}
	for _, request := range sizes {
		cells := []string{request}
		for _, one := range field {
			if one.kind != kindBare {
				cells = append(cells, figures.KB.Spread(all.of(one.name, sizeOf(request))))
			}
		}
		table = append(table, cells)
	}
	return table
}
