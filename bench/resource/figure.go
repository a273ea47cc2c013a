// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Figures that are measured in each round, by their names in the table. Durations are in
// seconds, memory and sizes in bytes, and CPU in processors.
const (
	allListed    = "all pods listed after start"
	cpuIdle      = "CPU, no requests"
	rssSteady    = "RSS steady"
	rssLists     = "RSS after lists"
	nodeAgeP50   = "age of node samples, median"
	nodeAgeP99   = "age of node samples, p99"
	podAgeP50    = "age of pod samples, median"
	podAgeP99    = "age of pod samples, p99"
	listJSON     = "LIST all pods, JSON"
	listJSONCold = "the same, first request"
	listProtobuf = "LIST all pods, protobuf"
	// listNamespace and the others below are in JSON.
	listNamespace = "LIST a namespace"
	listLabel     = "LIST a third of a namespace by label"
	listNodes     = "LIST nodes"
	getPod        = "GET a pod"
	listTable     = "Table of all pods (`kubectl get`)"
	listGzip      = "LIST all pods, JSON, gzip"
	listPretty    = "LIST all pods, `?pretty=1`"
	busyIdle      = "machine busy, no requests"
	busyLists     = "machine busy, requests"
	ownIdle       = "CPU of this program and the kubelets, no requests"
)

// figure is a row of the table.
type figure struct {
	name string
	unit unit
	// goal is the largest ratio to metrics-server that is aimed at, 0 for none.
	goal float64
	// plain rows have no ratio.
	plain bool
	// everywhere is set for figures that depend on how kubelets answer. They are reported
	// for each scenario, the others only for healthy kubelets.
	everywhere bool
}

// rows of the table, in order. The goals of ages are budgets of docs/design.md.
var rows = []figure{
	{name: cpuIdle, unit: millicores, goal: 0.2, everywhere: true},
	{name: rssSteady, unit: mebibytes, goal: 0.3, everywhere: true},
	{name: rssLists, unit: mebibytes, goal: 0.3, everywhere: true},
	{name: listJSON, unit: milliseconds, goal: 0.1, everywhere: true},
	{name: listJSONCold, unit: milliseconds},
	{name: listProtobuf, unit: milliseconds, goal: 0.1},
	{name: listNamespace, unit: milliseconds, goal: 0.1},
	{name: listLabel, unit: milliseconds, goal: 0.2},
	{name: listNodes, unit: milliseconds, goal: 0.2},
	{name: getPod, unit: milliseconds},
	{name: listTable, unit: milliseconds, goal: 0.2},
	{name: listGzip, unit: milliseconds},
	{name: listPretty, unit: milliseconds},
	{name: allListed, unit: seconds, goal: 0.8, everywhere: true},
	{name: nodeAgeP50, unit: seconds, goal: 0.6, everywhere: true},
	{name: nodeAgeP99, unit: seconds, goal: 0.75, everywhere: true},
	{name: podAgeP50, unit: seconds, everywhere: true},
	{name: podAgeP99, unit: seconds, everywhere: true},
	{name: busyIdle, unit: percent, plain: true, everywhere: true},
	{name: busyLists, unit: percent, plain: true},
	{name: ownIdle, unit: millicores, plain: true},
}

// sizes are the requests whose body is reported, in order.
var sizes = []string{listJSON, listProtobuf, listNamespace, listLabel, listNodes, getPod, listTable, listGzip, listPretty}

// sizeOf returns the figure of the body's size of a request.
func sizeOf(request string) string { return "size: " + request }

// unit formats values.
type unit struct {
	name string
	// number formats a value without the unit's name.
	number func(float64) string
}

var (
	millicores   = unit{"mCPU", func(v float64) string { return significant(1000 * v) }}
	mebibytes    = unit{"MiB", func(v float64) string { return fmt.Sprintf("%.0f", v/(1<<20)) }}
	kilobytes    = unit{"kB", func(v float64) string { return significant(v / 1000) }}
	milliseconds = unit{"ms", func(v float64) string { return significant(1000 * v) }}
	seconds      = unit{"s", func(v float64) string { return fmt.Sprintf("%.1f", v) }}
	percent      = unit{"%", func(v float64) string { return fmt.Sprintf("%.0f", 100*v) }}
	// quotient has no name.
	quotient = unit{"", func(v float64) string { return fmt.Sprintf("%.2f", v) }}
)

// format formats a value.
func (u unit) format(v float64) string { return strings.TrimSpace(u.number(v) + " " + u.name) }

// spread formats the median and the range of values, or nothing if there are none.
func (u unit) spread(all []float64) string {
	switch len(all) {
	case 0:
		return ""
	case 1:
		return u.format(all[0])
	}
	return fmt.Sprintf("%s (%s–%s)", u.format(median(all)), u.number(slices.Min(all)), u.number(slices.Max(all)))
}

// significant formats a number with a decimal if it is small.
func significant(v float64) string {
	if math.Abs(v) < 9.95 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// values are the figures of one contestant in one round.
type values map[string]float64

// results are the values of each contestant by round.
type results map[string][]values

// of returns a figure's values in the rounds that have it.
func (r results) of(contestant, figure string) []float64 {
	var all []float64
	for _, round := range r[contestant] {
		if v, ok := round[figure]; ok {
			all = append(all, v)
		}
	}
	return all
}

// ratios returns one contestant's values divided by another's, round by round.
func (r results) ratios(contestant, other, figure string) []float64 {
	var all []float64
	for i, round := range r[contestant] {
		if i >= len(r[other]) {
			break
		}
		v, ok := round[figure]
		w, okay := r[other][i][figure]
		if ok && okay && w != 0 {
			all = append(all, v/w)
		}
	}
	return all
}

// median returns the middle of the values, or the mean of the two in the middle. There must
// be one.
func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
