// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// points updates the rates from the committed body and returns the new points: that
// of the node, if any, and those of pods. The slices belong to the workspace.
//
// Unchanged pods yield nothing. All points of a scrape share two allocations: they
// are replaced together, so they also become garbage together.
func (s *nodeState) points(node string, r rateRules, w *workspace, stats *parseStats) (nodes, pods []samplestore.Update) {
	last := s.node.rate.time
	s.node.update(r, stats)
	r.node = &s.node
	w.pods = w.pods[:0]
	total := 0
	s.incomplete = false
	for _, p := range s.pods {
		if p.update(r, stats) {
			w.pods = append(w.pods, p)
			total += int(p.running)
		}
		s.incomplete = s.incomplete || !p.whole
	}
	if s.node.has(seriesCPU) && s.node.status == incomplete {
		s.incomplete = true
	}
	if s.node.status == complete && s.node.rate.time != last {
		w.node[0] = samplestore.Update{Key: samplestore.Key{Name: node}, Point: s.node.point(node)}
		nodes = w.node[:]
	}
	if len(w.pods) == 0 {
		return nodes, nil
	}
	points := make([]samplestore.Point, len(w.pods))
	usages := make([]samplestore.Usage, 0, total)
	w.updates = w.updates[:0]
	for i, p := range w.pods {
		begin := len(usages)
		earliest := cpuRate{}
		for _, c := range p.containers {
			if c.status != complete {
				continue
			}
			usages = append(usages, c.usage())
			if !earliest.known() || c.rate.time < earliest.time {
				earliest = c.rate
			}
		}
		points[i] = samplestore.Point{
			Time:   samplestore.Time(earliest.time),
			Window: time.Duration(earliest.window) * time.Millisecond,
			Newest: samplestore.Time(p.newest),
			Node:   node,
			Usages: usages[begin:len(usages):len(usages)],

			Started: samplestore.Time(p.started),
		}
		p.published = p.newest
		w.updates = append(w.updates, samplestore.Update{Key: p.key, Point: &points[i]})
	}
	return nodes, w.updates
}

// update updates the pod's containers and sets p.whole. It reports whether the pod has a
// new point: it is whole, and one of the rates is newer than the last published point.
func (p *pod) update(r rateRules, stats *parseStats) (isNew bool) {
	p.newest, p.started, p.running, p.whole = 0, 0, 0, true
	memory := uint64(0)
	for _, c := range p.containers {
		c.update(r, stats)
		switch c.status {
		case incomplete:
			p.whole = false
		case complete:
			p.running++
			memory = max(memory, c.memory)
			p.newest = max(p.newest, c.rate.time)
			p.started = max(p.started, c.baseline.start)
		}
	}
	if p.running > 0 && memory == 0 {
		p.whole = false // no memory could be read
	}
	return p.whole && p.running > 0 && p.newest > p.published
}

func (c *container) usage() samplestore.Usage {
	u := samplestore.Usage{Name: c.name(), CPU: c.rate.cpu, Memory: c.memory}
	if c.has(seriesSwap) {
		u.Swap, u.HasSwap = c.swap, true
	}
	return u
}

// point returns the point of the node as a whole.
func (c *container) point(node string) *samplestore.Point {
	at := samplestore.Time(c.rate.time)
	return &samplestore.Point{
		Time:   at,
		Window: time.Duration(c.rate.window) * time.Millisecond,
		Newest: at,
		Node:   node,
		Usages: []samplestore.Usage{c.usage()},
	}
}
