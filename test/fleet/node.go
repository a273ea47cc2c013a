// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Node is one fake kubelet.
type Node struct {
	Name string

	index   int
	seed    uint64
	boot    time.Time
	cadence nodeCadence
	load    load // what runs outside pods
	memory  walk

	address     netip.AddrPort   // set by Start
	certificate *tls.Certificate // likewise
	state       atomic.Pointer[nodeState]
	fault       atomic.Pointer[activeFault]
	answers     atomic.Uint64 // with a latency, so far
}

// nodeState is the pods of a node at one moment. It never changes: a restart or a
// move stores another, so that a scrape needs no lock and a frozen node keeps the old one.
type nodeState struct {
	pods       []*Pod       // in the order of arrival
	containers []*Container // in the order of the body: by container, namespace, pod
	sorted     []*Pod       // likewise: by namespace, pod
	past       ledger       // containers that left; the node's counter keeps them
}

func newNode(fleetSeed uint64, index int, epoch time.Time) *Node {
	name := fmt.Sprintf("fleet-node-%04d", index)
	seed := digest(fleetSeed, "node", name)
	n := &Node{
		Name:  name,
		index: index,
		seed:  seed,
		boot:  epoch.Add(-40 * 24 * time.Hour),
		cadence: nodeCadence{
			period: housekeeping,
			phase:  time.Duration(fraction(digest(seed, "phase")) * float64(housekeeping)).Truncate(time.Millisecond),
		},
		load:   newLoad(seed, 0.05, 0.5),
		memory: newWalk(seed, 256<<20, 1<<30),
	}
	n.fault.Store(&activeFault{})
	return n
}

func newNodeState(pods []*Pod, past ledger) *nodeState {
	s := &nodeState{pods: pods, past: past}
	s.sorted = slices.SortedFunc(slices.Values(pods), func(a, b *Pod) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, p := range s.sorted {
		s.containers = append(s.containers, p.Containers...)
	}
	// Stable: among equal names the pods' order, which is already right, stays.
	slices.SortStableFunc(s.containers, func(a, b *Container) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Pods on the node now, in the order of their arrival.
func (n *Node) Pods() []*Pod { return slices.Clone(n.state.Load().pods) }

// Address the kubelet listens on; the zero value before Start.
func (n *Node) Address() netip.AddrPort { return n.address }

// CPU is the true value of the node's counter at t, in core-seconds: its pods,
// those that left, and what runs outside pods.
func (n *Node) CPU(t time.Time) float64 { return seconds(n.nanoseconds(n.state.Load(), t)) }

// Memory is the node's working set at t, in bytes.
func (n *Node) Memory(t time.Time) uint64 { return n.workingSet(n.state.Load(), t) }

func (n *Node) nanoseconds(s *nodeState, t time.Time) uint64 {
	return n.load.nanoseconds(t.Sub(n.boot)) + s.past.nanoseconds(t) + sum(s.pods, t, (*Pod).nanoseconds)
}

func (n *Node) workingSet(s *nodeState, t time.Time) uint64 {
	return n.memory.bytes(t) + sum(s.pods, t, (*Pod).Memory)
}
