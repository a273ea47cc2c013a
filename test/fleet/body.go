// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strconv"
	"sync"
	"time"
)

const (
	metricsPath = "/metrics/resource"
	// contentType as promhttp answers a client that states no preference for escaping.
	contentType = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
)

// sample is what the body says of one container, pod or node at one time.
type sample struct {
	labels    string // with braces and the space that follows; " " without labels
	start     float64
	cpu       float64
	memory    float64
	swap      float64 // 0: nodes are without swap, and report so
	timestamp int64   // milliseconds since 1970
}

// samples of one scrape. They are computed once and stand in several families.
type samples struct {
	containers, pods, node []sample
}

// family is one metric of the body. The order of families is that of a registry:
// by name. Within one, samples are ordered by their label values.
type family struct {
	name   string
	header string
	of     func(*samples) []sample
	value  func(*sample) float64
	bare   bool // without a timestamp, as kubelets report start times
}

func newFamily(name, kind, help string, of func(*samples) []sample, value func(*sample) float64) family {
	return family{
		name:   name,
		header: "# HELP " + name + " " + help + "\n# TYPE " + name + " " + kind + "\n",
		of:     of,
		value:  value,
	}
}

func (f family) untimed() family { f.bare = true; return f }

var (
	ofContainers = func(s *samples) []sample { return s.containers }
	ofPods       = func(s *samples) []sample { return s.pods }
	ofNode       = func(s *samples) []sample { return s.node }

	cpuOf       = func(s *sample) float64 { return s.cpu }
	memoryOf    = func(s *sample) float64 { return s.memory }
	startOf     = func(s *sample) float64 { return s.start }
	swapOf      = func(s *sample) float64 { return s.swap }
	swapLimitOf = func(*sample) float64 { return 0 }
)

// families of a 1.37 kubelet (pkg/kubelet/metrics/collectors/resource_metrics.go).
// scrape_error is deprecated since 1.29 and hidden by now.
var families = []family{
	newFamily("container_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the container in core-seconds", ofContainers, cpuOf),
	newFamily("container_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the container in bytes", ofContainers, memoryOf),
	newFamily("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds", ofContainers, startOf).untimed(),
	newFamily("container_swap_limit_bytes", "gauge", "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", ofContainers, swapLimitOf),
	newFamily("container_swap_usage_bytes", "gauge", "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems", ofContainers, swapOf),
	newFamily("node_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the node in core-seconds", ofNode, cpuOf),
	newFamily("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes", ofNode, memoryOf),
	newFamily("node_swap_usage_bytes", "gauge", "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems", ofNode, swapOf),
	newFamily("pod_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds", ofPods, cpuOf),
	newFamily("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes", ofPods, memoryOf),
	newFamily("pod_swap_usage_bytes", "gauge", "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", ofPods, swapOf),
}

const trailer = "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n" +
	"# TYPE resource_scrape_error gauge\nresource_scrape_error 0\n"

// scratch is what rendering needs, kept between scrapes.
type scratch struct {
	samples samples
	body    []byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// AppendBody appends what a healthy node answers to a scrape at t.
func (n *Node) AppendBody(body []byte, t time.Time) []byte {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.samples.take(n, n.state.Load(), t)
	return s.samples.appendTo(body)
}

// take fills in what the node reports at t.
func (s *samples) take(n *Node, state *nodeState, t time.Time) {
	s.containers, s.pods, s.node = s.containers[:0], s.pods[:0], s.node[:0]
	for _, c := range state.containers {
		at, ok := c.cadence.at(t)
		if !ok {
			continue
		}
		s.containers = append(s.containers, sample{
			labels:    c.labels,
			start:     float64(c.Start.UnixNano()) / 1e9,
			cpu:       c.CPU(at),
			memory:    float64(c.Memory(at)),
			timestamp: at.UnixMilli(),
		})
	}
	for _, p := range state.sorted {
		at, ok := p.cadence.at(t)
		if !ok {
			continue
		}
		s.pods = append(s.pods, sample{
			labels:    p.labels,
			cpu:       p.CPU(at),
			memory:    float64(p.Memory(at)),
			timestamp: at.UnixMilli(),
		})
	}
	at := n.cadence.at(t)
	s.node = append(s.node, sample{
		labels:    " ",
		cpu:       seconds(n.nanoseconds(state, at)),
		memory:    float64(n.workingSet(state, at)),
		timestamp: at.UnixMilli(),
	})
}

// appendTo writes the samples in the text exposition format.
func (s *samples) appendTo(body []byte) []byte {
	for i := range families {
		f := &families[i]
		rows := f.of(s)
		if len(rows) == 0 {
			continue
		}
		body = append(body, f.header...)
		for j := range rows {
			body = append(body, f.name...)
			body = append(body, rows[j].labels...)
			body = strconv.AppendFloat(body, f.value(&rows[j]), 'g', -1, 64)
			if !f.bare {
				body = append(body, ' ')
				body = strconv.AppendInt(body, rows[j].timestamp, 10)
			}
			body = append(body, '\n')
		}
	}
	return append(body, trailer...)
}
