// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Restart restarts all containers of the pod: new start times, counters from
// 0. The pod's and the node's counters go on.
func (f *Fleet) Restart(pod types.NamespacedName) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, old, err := f.find(pod)
	if err != nil {
		return fmt.Errorf("restarting pod: %w", err)
	}
	now, forget := f.now()
	state := n.state.Load()
	pods := slices.Clone(state.pods)
	pods[slices.Index(pods, old)] = old.restarted(now, forget)
	n.state.Store(newNodeState(pods, state.past))
	return nil
}

// Move makes the pod disappear from its node and start, under the same name, on
// another: what a StatefulSet does when its node is drained.
func (f *Fleet) Move(pod types.NamespacedName, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, old, err := f.find(pod)
	if err != nil {
		return fmt.Errorf("moving pod: %w", err)
	}
	target := f.byName[to]
	if target == nil {
		return fmt.Errorf("moving pod %s: the fleet has no node %q", pod, to)
	}
	now, forget := f.now()
	state := from.state.Load()
	left := slices.DeleteFunc(slices.Clone(state.pods), func(p *Pod) bool { return p == old })
	from.state.Store(newNodeState(left, state.past.add(now, old.Containers...).merge(old.past).fold(forget)))
	state = target.state.Load()
	target.state.Store(newNodeState(append(slices.Clone(state.pods), old.startedAt(now)), state.past))
	f.pods[pod] = target
	return nil
}

// find needs mu.
func (f *Fleet) find(pod types.NamespacedName) (*Node, *Pod, error) {
	n := f.pods[pod]
	if n == nil {
		return nil, nil, fmt.Errorf("the fleet has no pod %s", pod)
	}
	pods := n.state.Load().pods
	return n, pods[slices.IndexFunc(pods, func(p *Pod) bool { return p.Key() == pod })], nil
}

// now is the moment of a change, and the one before which no sample is asked for
// any more: the oldest current sample is two periods old.
func (f *Fleet) now() (now, forget time.Time) {
	now = f.clock.Now().Truncate(time.Millisecond)
	return now, now.Add(-4 * housekeeping)
}
