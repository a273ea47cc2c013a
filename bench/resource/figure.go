// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/metricsbackend/metrics-backend-operator/bench/figures"
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
	unit figures.Unit
	// goal is the largest ratio to metrics-server that is aimed at, 0 for none.
	goal float64
	// plain rows have no ratio.
	plain bool
	// everywhere is set for figures that depend on how kubelets answer. They are reported
	// for each scenario, the others only for healthy kubelets.
	everywhere bool
}

// rows of the table, in order. Goals are for 1,000 nodes, each with 30 pods of 2 containers.
var rows = []figure{
	{name: cpuIdle, unit: figures.MilliCPU, goal: 0.2, everywhere: true},
	{name: rssSteady, unit: figures.MiB, goal: 0.25, everywhere: true},
	{name: rssLists, unit: figures.MiB, goal: 0.3, everywhere: true},
	{name: listJSON, unit: figures.Ms, goal: 0.1, everywhere: true},
	{name: listJSONCold, unit: figures.Ms},
	{name: listProtobuf, unit: figures.Ms, goal: 0.1},
	{name: listNamespace, unit: figures.Ms, goal: 0.1},
	{name: listLabel, unit: figures.Ms, goal: 0.2},
	{name: listNodes, unit: figures.Ms, goal: 0.15},
	{name: getPod, unit: figures.Ms, goal: 1},
	{name: listTable, unit: figures.Ms, goal: 0.2},
	{name: listGzip, unit: figures.Ms},
	{name: listPretty, unit: figures.Ms},
	{name: allListed, unit: figures.Sec, goal: 0.8, everywhere: true},
	{name: nodeAgeP50, unit: figures.Sec, goal: 0.6, everywhere: true},
	{name: nodeAgeP99, unit: figures.Sec, goal: 0.75, everywhere: true},
	{name: podAgeP50, unit: figures.Sec, goal: 0.8, everywhere: true},
	{name: podAgeP99, unit: figures.Sec, goal: 1, everywhere: true},
	{name: busyIdle, unit: figures.Percent, plain: true, everywhere: true},
	{name: busyLists, unit: figures.Percent, plain: true},
	{name: ownIdle, unit: figures.MilliCPU, plain: true},
}

// sizes are the requests whose body is reported, in order.
var sizes = []string{listJSON, listProtobuf, listNamespace, listLabel, listNodes, getPod, listTable, listGzip, listPretty}

// sizeOf returns the figure of the body's size of a request.
func sizeOf(request string) string { return "size: " + request }

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
