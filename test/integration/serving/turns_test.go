//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"sync"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// A test that calls neither beside nor inTurn has the control plane to itself: Go runs it before those that do. It may
// stop kube-apiserver, take the CRDs away, look at all nodes or all writes, and read the discovery of all groups, which
// fails in part while any APIService is new.

// nodesOf is the label of a node that names the test which it belongs to. Each process scrapes the nodes of its own
// test alone: others are neither in its lists nor load for it, and its requests are not counted as theirs.
const nodesOf = "test"

var (
	// places are for the tests that run at the same time: more would be late on a machine with few processors.
	places = make(chan struct{}, 5)
	// turn is held by the test that has registered metrics.k8s.io, or puts load on the machine.
	turn sync.Mutex
)

// beside lets a test run at the same time as others. Its nodes and pods, and the APIServices that it registers, have
// names that no other test uses.
func beside(t *testing.T) {
	t.Helper()
	t.Parallel()
	takePlace(t)
}

// inTurn is beside for a test that registers metrics.k8s.io, or puts load on the machine: they run one after another.
func inTurn(t *testing.T) {
	t.Helper()
	t.Parallel()
	turn.Lock()
	t.Cleanup(turn.Unlock)
	takePlace(t)
}

// takePlace waits for one of the places. The first cleanup is the last to run: the test's objects are gone by then.
func takePlace(t *testing.T) {
	t.Helper()
	places <- struct{}{}
	outcome.Begin(t)
	t.Cleanup(func() { <-places })
}
