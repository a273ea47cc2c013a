// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ChangeKind says what happened to a pod.
type ChangeKind string

// What can happen to a pod.
const (
	Restarted ChangeKind = "restarted"
	Moved     ChangeKind = "moved"
	Added     ChangeKind = "added"
	Removed   ChangeKind = "removed"
)

// Change is one step of churn. Kubelets report it at once; [Writer.Apply] brings
// it to the API server.
type Change struct {
	Kind ChangeKind
	// Pod as it is after the change; the last of it for Removed.
	Pod *Pod
	// From and To are nodes: both for Moved, equal for Restarted, one for the others.
	From, To *Node
}

// Restart starts all containers of the pod anew: new start times, counters from
// 0. The pod's and the node's counters go on.
func (f *Fleet) Restart(pod types.NamespacedName) (Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, old, err := f.find(pod)
	if err != nil {
		return Change{}, fmt.Errorf("restarting pod: %w", err)
	}
	return f.restart(n, old), nil
}

// Move makes the pod disappear from its node and start, under the same name, on
// another: what a StatefulSet does when its node is drained.
func (f *Fleet) Move(pod types.NamespacedName, to string) (Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from, old, err := f.find(pod)
	if err != nil {
		return Change{}, fmt.Errorf("moving pod: %w", err)
	}
	target := f.byName[to]
	if target == nil {
		return Change{}, fmt.Errorf("moving pod %s: the fleet has no node %q", pod, to)
	}
	return f.move(from, target, old), nil
}

// Add starts a new pod on the node.
func (f *Fleet) Add(node string) (Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.byName[node]
	if n == nil {
		return Change{}, fmt.Errorf("adding a pod: the fleet has no node %q", node)
	}
	return f.add(n), nil
}

// Remove ends the pod.
func (f *Fleet) Remove(pod types.NamespacedName) (Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, old, err := f.find(pod)
	if err != nil {
		return Change{}, fmt.Errorf("removing pod: %w", err)
	}
	return f.remove(n, old), nil
}

// Churn is how many pods one round restarts, moves to another node, and replaces
// by a new pod somewhere else.
type Churn struct {
	Restart int `json:"restart,omitempty"`
	Move    int `json:"move,omitempty"`
	Replace int `json:"replace,omitempty"`
}

// Churn makes that many changes to pods drawn by the seed: equal fleets with
// equal rounds behind them draw the same.
func (f *Fleet) Churn(round Churn) ([]Change, error) {
	if round.Restart < 0 || round.Move < 0 || round.Replace < 0 {
		return nil, errors.New("churn: counts must not be negative")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.homes) == 0 {
		return nil, errors.New("churn: the fleet has no pods")
	}
	var changes []Change
	for range round.Restart {
		changes = append(changes, f.restart(f.draw()))
	}
	for range round.Move {
		from, pod := f.draw()
		changes = append(changes, f.move(from, f.nodes[f.random.IntN(len(f.nodes))], pod))
	}
	for range round.Replace {
		changes = append(changes, f.remove(f.draw()))
		changes = append(changes, f.add(f.nodes[f.random.IntN(len(f.nodes))]))
	}
	return changes, nil
}

// The rest needs mu.

func (f *Fleet) find(pod types.NamespacedName) (*Node, *Pod, error) {
	n := f.homes[pod]
	if n == nil {
		return nil, nil, fmt.Errorf("the fleet has no pod %s", pod)
	}
	pods := n.state.Load().pods
	return n, pods[slices.IndexFunc(pods, func(p *Pod) bool { return p.Key() == pod })], nil
}

func (f *Fleet) draw() (*Node, *Pod) {
	for {
		n := f.nodes[f.random.IntN(len(f.nodes))]
		if pods := n.state.Load().pods; len(pods) > 0 {
			return n, pods[f.random.IntN(len(pods))]
		}
	}
}

// now is the moment of a change, and the one before which no sample is asked for
// any more: the oldest current sample is two periods old.
func (f *Fleet) now() (now, forget time.Time) {
	now = f.clock.Now().Truncate(time.Millisecond)
	return now, now.Add(-4 * f.options.Period)
}

func (f *Fleet) restart(n *Node, old *Pod) Change {
	now, forget := f.now()
	pod := old.restarted(now, forget)
	state := n.state.Load()
	pods := slices.Clone(state.pods)
	pods[slices.Index(pods, old)] = pod
	n.state.Store(newNodeState(pods, state.past))
	return Change{Kind: Restarted, Pod: pod, From: n, To: n}
}

func (f *Fleet) move(from, to *Node, old *Pod) Change {
	now, _ := f.now()
	f.remove(from, old)
	pod := old.startedAt(now)
	f.place(to, pod)
	return Change{Kind: Moved, Pod: pod, From: from, To: to}
}

func (f *Fleet) add(n *Node) Change {
	now, _ := f.now()
	pod := f.newPod(now)
	f.place(n, pod)
	return Change{Kind: Added, Pod: pod, To: n}
}

func (f *Fleet) place(n *Node, pod *Pod) {
	state := n.state.Load()
	n.state.Store(newNodeState(append(slices.Clone(state.pods), pod), state.past))
	f.homes[pod.Key()] = n
}

func (f *Fleet) remove(n *Node, old *Pod) Change {
	now, forget := f.now()
	state := n.state.Load()
	pods := slices.DeleteFunc(slices.Clone(state.pods), func(p *Pod) bool { return p == old })
	n.state.Store(newNodeState(pods, state.past.add(now, old.Containers...).merge(old.past).fold(forget)))
	delete(f.homes, old.Key())
	return Change{Kind: Removed, Pod: old, From: n}
}
