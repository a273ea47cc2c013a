// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
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
	swap    Swap

	address netip.AddrPort // set by Start
	state   atomic.Pointer[nodeState]
	fault   atomic.Pointer[activeFault]
	door    door

	certificates certificates
}

// nodeState is the pods of a node at one moment. It never changes: churn stores
// another, so that a scrape needs no lock and a frozen node keeps the old one.
type nodeState struct {
	pods       []*Pod       // in the order of arrival
	containers []*Container // in the order of the body: by container, namespace, pod
	sorted     []*Pod       // likewise: by namespace, pod
	past       ledger       // containers that left; the node's counter keeps them
}

func newNode(o Options, index int) *Node {
	name := fmt.Sprintf("%s-node-%04d", o.Name, index)
	seed := digest(o.Seed, "node", name)
	n := &Node{
		Name:  name,
		index: index,
		seed:  seed,
		boot:  o.Epoch.Add(-40 * 24 * time.Hour),
		cadence: nodeCadence{
			period: o.Period,
			phase:  time.Duration(fraction(digest(seed, "phase")) * float64(o.Period)).Truncate(time.Millisecond),
		},
		load:   newLoad(seed, 0.05, 0.5),
		memory: newWalk(seed, 256<<20, 1<<30),
		swap:   o.Swap,
	}
	n.fault.Store(newActiveFault(Fault{}))
	n.door.open = map[*conn]struct{}{}
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

// Phase at which the node's samples are renewed: sample times are equal to it
// modulo the housekeeping period.
func (n *Node) Phase() time.Duration { return n.cadence.phase }

// SampleTime is the time of the newest node sample that a scrape at t reports.
func (n *Node) SampleTime(t time.Time) time.Time { return n.cadence.at(t) }

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

// door is the node's open connections, so that a fault can close them.
type door struct {
	mu   sync.Mutex
	open map[*conn]struct{}
}
