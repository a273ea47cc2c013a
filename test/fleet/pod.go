// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Container is one incarnation of a container: a restart makes another one.
// It never changes.
type Container struct {
	Name string
	// Start of this incarnation, whole milliseconds.
	Start time.Time

	labels  string // as they stand in the body
	load    load
	memory  walk
	cadence jitteredCadence
}

// CPU used from Start to t, in core-seconds: the true value of the counter at t.
func (c *Container) CPU(t time.Time) float64 { return seconds(c.nanoseconds(t)) }

// Memory is the working set at t, in bytes.
func (c *Container) Memory(t time.Time) uint64 { return c.memory.bytes(t) }

func (c *Container) nanoseconds(t time.Time) uint64 { return c.load.nanoseconds(t.Sub(c.Start)) }

// Pod and the present incarnation of its containers. It never changes: a restart or a
// move puts another one in its place.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Start           time.Time
	// Containers in the order of the pod's spec.
	Containers []*Container

	labels  string
	cadence jitteredCadence
	past    ledger // incarnations before the present ones; the pod's cgroup outlives them
}

// Key of the pod.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// CPU used by the pod's containers up to t, in core-seconds, restarts included.
func (p *Pod) CPU(t time.Time) float64 { return seconds(p.nanoseconds(t)) }

// Memory is the sum of the containers' working sets at t, in bytes.
func (p *Pod) Memory(t time.Time) uint64 { return sum(p.Containers, t, (*Container).Memory) }

func (p *Pod) nanoseconds(t time.Time) uint64 {
	return p.past.nanoseconds(t) + sum(p.Containers, t, (*Container).nanoseconds)
}

func sum[T any](items []T, t time.Time, value func(T, time.Time) uint64) uint64 {
	var total uint64
	for _, item := range items {
		total += value(item, t)
	}
	return total
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / 1e9 }

// restarted is the pod with all its containers restarted at that time.
func (p *Pod) restarted(at, forget time.Time) *Pod {
	next := *p
	next.past = p.past.add(at, p.Containers...).fold(forget)
	next.Containers = startedAt(p.Containers, at)
	return &next
}

// startedAt is the pod as it begins on another node: new cgroups, no past.
func (p *Pod) startedAt(at time.Time) *Pod {
	next := *p
	next.Start = at
	next.past = ledger{}
	next.cadence = newJitteredCadence(p.cadence.seed, at, p.cadence.period)
	next.Containers = startedAt(p.Containers, at)
	return &next
}

func startedAt(containers []*Container, at time.Time) []*Container {
	started := make([]*Container, len(containers))
	for i, c := range containers {
		next := *c
		next.Start = at
		next.cadence = newJitteredCadence(c.cadence.seed, at, c.cadence.period)
		started[i] = &next
	}
	return started
}

// ledger is the CPU of containers that are gone, which their pod's and node's
// counters keep. Each is kept with its end for as long as a sample from before
// the end may be asked for, and then as a mere number.
type ledger struct {
	settled uint64 // nanoseconds
	ended   []ending
}

type ending struct {
	container *Container
	end       time.Time
}

func (l ledger) nanoseconds(t time.Time) uint64 {
	total := l.settled
	for _, e := range l.ended {
		if t.After(e.end) {
			total += e.container.nanoseconds(e.end)
		} else {
			total += e.container.nanoseconds(t)
		}
	}
	return total
}

// add is the ledger with containers that ended at that time.
func (l ledger) add(end time.Time, containers ...*Container) ledger {
	next := ledger{settled: l.settled, ended: append([]ending(nil), l.ended...)}
	for _, c := range containers {
		next.ended = append(next.ended, ending{container: c, end: end})
	}
	return next
}

// merge is both ledgers in one.
func (l ledger) merge(other ledger) ledger {
	return ledger{settled: l.settled + other.settled, ended: append(append([]ending(nil), l.ended...), other.ended...)}
}

// fold settles what ended before that time.
func (l ledger) fold(before time.Time) ledger {
	next := ledger{settled: l.settled}
	for _, e := range l.ended {
		if e.end.Before(before) {
			next.settled += e.container.nanoseconds(e.end)
		} else {
			next.ended = append(next.ended, e)
		}
	}
	return next
}

// containerNames of a pod, in the order of its spec.
var containerNames = [...]string{"app", "proxy", "logger", "agent"}

// newPod makes the fleet's next pod. Pods are numbered through: the number
// decides namespace, application and tier, so that each namespace holds about
// the same number of pods and a label selects a third of it.
func (f *Fleet) newPod(start time.Time) *Pod {
	o := &f.options
	number := len(f.pods)
	namespace, within := f.namespaces[number%len(f.namespaces)], number/len(f.namespaces)
	app := fmt.Sprintf("app-%02d", within%20)
	template := suffix(digest(o.Seed, namespace, app), 10)
	p := &Pod{
		Namespace: namespace,
		Labels: map[string]string{
			"app":               app,
			"tier":              [...]string{"frontend", "backend", "database"}[within%3],
			"pod-template-hash": template,
		},
		Start: start,
	}
	for try := 0; p.Name == "" || f.pods[p.Key()] != nil; try++ {
		p.Name = fmt.Sprintf("%s-%s-%s", app, template, suffix(digest(o.Seed, "pod", fmt.Sprint(number, try)), 5))
	}
	seed := digest(o.Seed, p.Namespace, p.Name)
	p.labels = fmt.Sprintf(`{namespace=%q,pod=%q} `, p.Namespace, p.Name)
	p.cadence = newJitteredCadence(seed, start, housekeeping)
	for i := range o.ContainersPerPod {
		name := fmt.Sprintf("container-%d", i)
		if i < len(containerNames) {
			name = containerNames[i]
		}
		p.Containers = append(p.Containers, newContainer(o, p, name, start))
	}
	return p
}

func newContainer(o *Options, p *Pod, name string, start time.Time) *Container {
	seed := digest(o.Seed, p.Namespace, p.Name, name)
	return &Container{
		Name:    name,
		Start:   start,
		labels:  fmt.Sprintf(`{container=%q,namespace=%q,pod=%q} `, name, p.Namespace, p.Name),
		load:    newLoad(seed, 0.001, 0.5),
		memory:  newWalk(seed, 8<<20, 1<<30),
		cadence: newJitteredCadence(seed, start, housekeeping),
	}
}

// suffix spells a hash in the letters that Kubernetes generates names from.
func suffix(h uint64, length int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	var b strings.Builder
	for range length {
		b.WriteByte(letters[h%uint64(len(letters))])
		h = mix(h + 1)
	}
	return b.String()
}
