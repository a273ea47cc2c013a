// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Kind of a fault. The empty kind is a healthy kubelet.
type Kind string

// Faults of the answer.
const (
	// Reset takes the request and resets the connection.
	Reset Kind = "reset"
	// Aborted closes the connection in the middle of the announced body.
	Aborted Kind = "aborted"
	// Truncated ends the body in the middle of a line, and well for HTTP.
	Truncated Kind = "truncated"
	// Garbage answers 64 KiB of noise with status 200.
	Garbage Kind = "garbage"
	// Forbidden answers 403.
	Forbidden Kind = "forbidden"
	// InternalError answers 500.
	InternalError Kind = "internal-error"
	// Hanging accepts the request and never answers. It ends when the client closes the
	// connection or the fleet stops, not when the fault is switched off.
	Hanging Kind = "hanging"
	// Slow answers after Fault.After, whatever the fleet's latency.
	Slow Kind = "slow"
)

// Faults of the samples. Those below Frozen hit the node's samples and all pods
// and containers, or only the first Fault.Containers containers of the body.
const (
	// Frozen repeats for ever what the node reported when the fault was switched on.
	Frozen Kind = "frozen"
	// NaN in place of every value.
	NaN Kind = "nan"
	// Negative values.
	Negative Kind = "negative"
	// Enormous values, beyond what an unsigned 64-bit integer holds.
	Enormous Kind = "enormous"
	// Duplicate repeats each series with another value.
	Duplicate Kind = "duplicate"
	// NoLabels leaves out the labels of containers and pods.
	NoLabels Kind = "no-labels"
	// Old timestamps, an hour in the past.
	Old Kind = "old-timestamps"
	// Future timestamps, an hour ahead.
	Future Kind = "future-timestamps"
)

// kinds are all of them.
var kinds = []Kind{
	Reset, Aborted, Truncated, Garbage, Forbidden, InternalError, Hanging, Slow,
	Frozen, NaN, Negative, Enormous, Duplicate, NoLabels, Old, Future,
}

// distortions are the faults that spoil single samples.
var distortions = map[Kind]func(*sample){
	NaN:       func(s *sample) { s.scale(math.NaN()) },
	Negative:  func(s *sample) { s.scale(-1) },
	Enormous:  func(s *sample) { s.cpu, s.memory, s.swap = 1e300, 1e300, 1e300 },
	Duplicate: func(s *sample) { s.scale(2) },
	NoLabels:  func(s *sample) { s.labels = " " },
	Old:       func(s *sample) { s.timestamp -= time.Hour.Milliseconds() },
	Future:    func(s *sample) { s.timestamp += time.Hour.Milliseconds() },
}

func (s *sample) scale(factor float64) {
	s.cpu, s.memory, s.swap = s.cpu*factor, s.memory*factor, s.swap*factor
}

// Fault of a kubelet. The zero value is a healthy one.
type Fault struct {
	Kind Kind
	// Containers that a fault of samples hits, counted from the top of the body;
	// 0: all of them, and the pods' and the node's samples too.
	Containers int
	// After is the time between a request and the answer of Slow.
	After time.Duration
}

// activeFault is a node's fault while it lasts.
type activeFault struct {
	Fault
	frozen   *nodeState // of Frozen
	frozenAt time.Time
}

// distort spoils the samples as the fault says.
func (a *activeFault) distort(s *samples) {
	spoil, ok := distortions[a.Kind]
	if !ok {
		return
	}
	s.containers = a.distortRows(s.containers, cmp.Or(a.Containers, len(s.containers)), spoil)
	if a.Containers == 0 {
		s.pods = a.distortRows(s.pods, len(s.pods), spoil)
		s.node = a.distortRows(s.node, len(s.node), spoil)
	}
}

func (a *activeFault) distortRows(rows []sample, hit int, spoil func(*sample)) []sample {
	hit = min(hit, len(rows))
	if a.Kind == Duplicate {
		for i := hit - 1; i >= 0; i-- {
			rows = slices.Insert(rows, i, rows[i])
		}
		for i := range hit {
			spoil(&rows[2*i+1])
		}
		return rows
	}
	for i := range hit {
		spoil(&rows[i])
	}
	return rows
}

// SetFault switches a fault on at the named nodes, in place of the one they had;
// the zero Fault heals them. No names: all nodes.
func (f *Fleet) SetFault(fault Fault, names ...string) error {
	if fault.Kind != "" && !slices.Contains(kinds, fault.Kind) {
		return fmt.Errorf("unknown fault %q: known are %q", fault.Kind, kinds)
	}
	if (fault.Kind == Slow) != (fault.After > 0) {
		return fmt.Errorf("fault %q with After %v: %q needs a positive time, and no other fault has one", fault.Kind, fault.After, Slow)
	}
	nodes, err := f.named(names)
	if err != nil {
		return fmt.Errorf("setting fault %q: %w", fault.Kind, err)
	}
	for _, n := range nodes {
		active := &activeFault{Fault: fault}
		if fault.Kind == Frozen {
			active.frozen, active.frozenAt = n.state.Load(), f.clock.Now()
		}
		n.fault.Store(active)
	}
	return nil
}

func (f *Fleet) named(names []string) ([]*Node, error) {
	if len(names) == 0 {
		return f.nodes, nil
	}
	nodes := make([]*Node, len(names))
	for i, name := range names {
		if nodes[i] = f.byName[name]; nodes[i] == nil {
			return nil, fmt.Errorf("the fleet has no node %q", name)
		}
	}
	return nodes, nil
}
