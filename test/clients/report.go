// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxShown bounds the failures in a report.
const maxShown = 20

// Changes tells when which versions were current, one line for each change.
func (r *Result) Changes() []string {
	var lines []string
	last := "-"
	for _, read := range r.Reads {
		now := strings.Join(read.Current, " ")
		for _, version := range read.Stale {
			now += " (" + version + " stale)"
		}
		if read.Err == "" && now != last {
			lines = append(lines, clock(read.Began)+" "+now)
			last = now
		}
	}
	return lines
}

// Departures is how often the version left discovery.
func (r *Result) Departures(version string) int {
	n := 0
	listed := false
	for _, read := range r.Reads {
		if read.Err != "" {
			continue
		}
		if listed && !read.Lists(version) {
			n++
		}
		listed = read.Lists(version)
	}
	return n
}

// String is the report.
func (r *Result) String() string {
	var b strings.Builder
	total := 0
	for _, codes := range r.Answers {
		for _, n := range codes {
			total += n
		}
	}
	took := r.ended.Sub(r.began).Round(time.Second)
	fmt.Fprintf(&b, "clients, %s: %d requests, slowest %s, %d failures\n", took, total, r.Slowest.Round(time.Millisecond), len(r.Failures))
	for _, kind := range sortedKeys(r.Answers) {
		fmt.Fprintf(&b, "  %-32s", kind)
		for _, code := range sortedKeys(r.Answers[kind]) {
			fmt.Fprintf(&b, " %d: %d", code, r.Answers[kind][code])
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "  404 while discovery was changing: %d\n", r.Excused)
	fmt.Fprintf(&b, "  discovery: %d reads, v1 left it %d times\n", len(r.Reads), r.Departures("v1"))
	for _, line := range r.Changes() {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	if len(r.Namespaces) > 0 {
		fmt.Fprintf(&b, "  namespaces: %d, gone after %s (median), %s (slowest)\n", len(r.Namespaces),
			median(r.Namespaces).Round(time.Millisecond), slices.Max(r.Namespaces).Round(time.Millisecond))
	}
	fmt.Fprintf(&b, "  autoscaler: %d states seen; figures: %d samples\n", r.AutoscalerStates, r.FigureSamples)
	for _, line := range r.Figures {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	for i, failure := range r.Failures {
		if i == maxShown {
			fmt.Fprintf(&b, "  … and %d failures more\n", len(r.Failures)-i)
			break
		}
		fmt.Fprintf(&b, "  FAILURE: %s\n", failure)
	}
	return b.String()
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

func sortedKeys[K int | string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func labelText(labels map[string]string) string {
	var pairs []string
	for _, name := range sortedKeys(labels) {
		pairs = append(pairs, fmt.Sprintf("%s=%q", name, labels[name]))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
