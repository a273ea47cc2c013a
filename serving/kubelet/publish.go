// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// points settles all samples of the committed body and returns the points that
// are news: one of the node, if any, and those of pods. The slices belong to the
// workspace.
//
// Unchanged pods yield nothing, and all points of a scrape share two
// allocations: they are renewed together, so they also become garbage together.
func (l *ledger) points(node string, r rules, w *workspace, t *tally) (nodes, pods []samplestore.Update) {
	w.ready = w.ready[:0]
	total := 0
	for _, p := range l.pods {
		if p.settle(r, t) {
			w.ready = append(w.ready, p)
			total += p.running
		}
	}
	before := l.node.rate.time
	if l.node.settle(r, t) == sampled && l.node.rate.time != before {
		w.node[0] = samplestore.Update{Key: samplestore.Key{Name: node}, Point: l.node.point(node)}
		nodes = w.node[:]
	}
	if len(w.ready) == 0 {
		return nodes, nil
	}
	points := make([]samplestore.Point, len(w.ready))
	usages := make([]samplestore.Usage, 0, total)
	w.updates = w.updates[:0]
	for i, p := range w.ready {
		begin := len(usages)
		earliest := cpuRate{}
		for _, c := range p.containers {
			if c.standing != sampled {
				continue
			}
			usages = append(usages, c.usage())
			if !earliest.known() || c.rate.time < earliest.time {
				earliest = c.rate
			}
		}
		points[i] = samplestore.Point{
			Time:   instant(earliest.time),
			Window: time.Duration(earliest.window) * time.Millisecond,
			Newest: instant(p.newest),
			Node:   node,
			Usages: usages[begin:len(usages):len(usages)],
		}
		if p.started != 0 {
			points[i].Started = instant(p.started)
		}
		p.published = p.newest
		w.updates = append(w.updates, samplestore.Update{Key: p.key, Point: &points[i]})
	}
	return nodes, w.updates
}

// settle says whether the pod has a new point: each of its containers that runs
// has a rate and a memory figure, and one of the rates is newer than the last
// published point.
func (p *pod) settle(r rules, t *tally) bool {
	p.newest, p.started, p.running = 0, 0, 0
	complete := true
	for _, c := range p.containers {
		c.standing = c.settle(r, t)
		switch c.standing {
		case unsampled:
			complete = false
		case sampled:
			p.running++
			p.newest = max(p.newest, c.rate.time)
			p.started = max(p.started, c.base.start)
		}
	}
	return complete && p.running > 0 && p.newest > p.published
}

func (c *container) usage() samplestore.Usage {
	return samplestore.Usage{
		Name:    c.name(),
		CPU:     c.rate.cpu,
		Memory:  c.memory,
		Swap:    c.swapNow(),
		HasSwap: c.got&gotSwap != 0,
	}
}

func (c *container) swapNow() uint64 {
	if c.got&gotSwap == 0 {
		return 0
	}
	return c.swap
}

// point is the node's point.
func (c *container) point(node string) *samplestore.Point {
	at := instant(c.rate.time)
	return &samplestore.Point{
		Time:   at,
		Window: time.Duration(c.rate.window) * time.Millisecond,
		Newest: at,
		Node:   node,
		Usages: []samplestore.Usage{c.usage()},
	}
}
