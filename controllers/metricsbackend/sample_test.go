// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"hash/fnv"
	"maps"
	"slices"
	"testing"
)

// The race detector makes tests several times as slow. hack/test.sh runs the tests that
// use a function of this file completely without the race detector, and shortened by
// -short with it.

// sampled returns the whole table, or with -short one case. The test's name decides
// which, so that tests of one table take different ones.
func sampled[T any](t *testing.T, table map[string]T) map[string]T {
	t.Helper()
	if !testing.Short() {
		return table
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	names := slices.Sorted(maps.Keys(table))
	name := names[hash.Sum32()%uint32(len(names))]
	return map[string]T{name: table[name]}
}

// shortened returns whole, or with -short the other number.
func shortened(whole, short int) int {
	if testing.Short() {
		return short
	}
	return whole
}
