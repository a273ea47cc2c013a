// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"maps"
	"slices"
	"testing"
)

// sampled is the whole table, or with -short every sixth case of it. The race
// detector makes the great tables ten times as slow, and they run one goroutine:
// hack/test.sh runs them whole without it, and sampled with it.
func sampled[T any](table map[string]T) map[string]T {
	if !testing.Short() {
		return table
	}
	sample := map[string]T{}
	for i, name := range slices.Sorted(maps.Keys(table)) {
		if i%6 == 0 {
			sample[name] = table[name]
		}
	}
	return sample
}

// sampledStops is all stops, or with -short each twentieth.
func sampledStops(stops []stop) []stop {
	if !testing.Short() {
		return stops
	}
	var sample []stop
	for i := 0; i < len(stops); i += 20 {
		sample = append(sample, stops[i])
	}
	return sample
}
