// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

// scenario is how the kubelets answer.
type scenario struct {
	name, description string
	latency           fleet.Latency
	// percent of the kubelets have the fault.
	percent int
	fault   fleet.Fault
}

const (
	healthy      = "healthy"
	allScenarios = "all"
	// slowAnswer is less than the timeout of a scrape of both metrics-server and serving.
	slowAnswer = 5 * time.Second
)

// scenarios are all of them, in the order in which they are measured.
var scenarios = []scenario{
	{name: healthy, description: "all kubelets answer at once"},
	{name: "lognormal", description: "all kubelets answer with a lognormal latency, median 20 ms, p99 1 s", latency: fleet.Latency{Median: 20 * time.Millisecond, P99: time.Second}},
	faulty("failing", 1, "respond with status 500", fleet.Fault{Kind: fleet.InternalError}),
	faulty("failing", 10, "respond with status 500", fleet.Fault{Kind: fleet.InternalError}),
	faulty("hanging", 1, "accept requests and never answer", fleet.Fault{Kind: fleet.Hanging}),
	faulty("hanging", 10, "accept requests and never answer", fleet.Fault{Kind: fleet.Hanging}),
	faulty("slow", 1, "answer after 5 s", fleet.Fault{Kind: fleet.Slow, After: slowAnswer}),
	faulty("slow", 10, "answer after 5 s", fleet.Fault{Kind: fleet.Slow, After: slowAnswer}),
}

func faulty(name string, percent int, description string, fault fleet.Fault) scenario {
	return scenario{
		name: fmt.Sprintf("%s-%d", name, percent), description: fmt.Sprintf("%d %% of the kubelets %s", percent, description),
		percent: percent, fault: fault,
	}
}

// scenariosNamed returns the scenarios with these names, in the order of all. The name "all"
// stands for every one.
func scenariosNamed(names []string) ([]scenario, error) {
	var known []string
	for _, s := range scenarios {
		known = append(known, s.name)
	}
	for _, name := range names {
		if name != allScenarios && !slices.Contains(known, name) {
			return nil, fmt.Errorf("--scenario %q: must be %s or %s", name, strings.Join(known, ", "), allScenarios)
		}
	}
	if slices.Contains(names, allScenarios) {
		names = known
	}
	var named []scenario
	for _, s := range scenarios {
		if slices.Contains(names, s.name) {
			named = append(named, s)
		}
	}
	if len(named) == 0 {
		return nil, fmt.Errorf("--scenario: must name one of %s or %s", strings.Join(known, ", "), allScenarios)
	}
	return named, nil
}

// affected returns the indexes of the nodes with the fault, evenly spread: the percentage of
// all, but at least one.
func (s scenario) affected(nodes int) []int {
	if s.percent == 0 {
		return nil
	}
	count := max(1, (nodes*s.percent+50)/100)
	var all []int
	for i := range count {
		all = append(all, i*nodes/count)
	}
	return all
}

// tolerated returns how many of a number of objects may be missing in a response. The tail of
// a lognormal latency is longer than the timeout of a scrape.
func (s scenario) tolerated(objects int) int {
	if s.latency == (fleet.Latency{}) {
		return 0
	}
	return (objects*3 + 99) / 100
}

// apply lets the kubelets answer as in a scenario, and returns those without a fault.
func (s scenario) apply(f *fleet.Fleet) ([]*fleet.Node, error) {
	if err := f.SetFault(fleet.Fault{}); err != nil {
		return nil, err
	}
	if err := f.SetLatency(s.latency); err != nil {
		return nil, err
	}
	affected := s.affected(len(f.Nodes()))
	if len(affected) == len(f.Nodes()) {
		return nil, fmt.Errorf("scenario %s needs more than %d kubelets", s.name, len(affected))
	}
	var well []*fleet.Node
	var names []string
	for i, n := range f.Nodes() {
		if slices.Contains(affected, i) {
			names = append(names, n.Name)
		} else {
			well = append(well, n)
		}
	}
	if len(names) == 0 { // no names would be all nodes
		return well, nil
	}
	return well, f.SetFault(s.fault, names...)
}
