// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"math"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/textparse"
)

// family is a metric family of /metrics/resource that is used. The names are
// stable since KEP-727, except for the two of swap.
type family uint8

const (
	familyOther family = iota
	containerCPU
	containerMemory
	containerStart
	containerSwap
	nodeCPU
	nodeMemory
	nodeSwap
	scrapeError
	podCPU
)

func familyOf(name []byte) family {
	switch string(name) {
	case "container_cpu_usage_seconds_total":
		return containerCPU
	case "container_memory_working_set_bytes":
		return containerMemory
	case "container_start_time_seconds":
		return containerStart
	case "container_swap_usage_bytes":
		return containerSwap
	case "node_cpu_usage_seconds_total":
		return nodeCPU
	case "node_memory_working_set_bytes":
		return nodeMemory
	case "node_swap_usage_bytes":
		return nodeSwap
	case "resource_scrape_error", "scrape_error":
		return scrapeError
	case "pod_cpu_usage_seconds_total":
		return podCPU
	}
	return familyOther
}

const (
	// maxFuture is how far a timestamp may be ahead of our clock. It bounds how
	// long a node's points stay the same after its clock was set back.
	maxFuture = 2 * time.Minute
	// maxPast is how old a sample may be: no maxSampleAge would let it be served.
	maxPast = time.Hour
	// maxCPU in core-seconds is the end of the kubelet's own counter, which has
	// nanoseconds in 64 bits.
	maxCPU = 1 << 64 / 1e9
	// maxBytes is 8 PiB: no node has more, and a float64 is exact up to there.
	maxBytes = 1 << 53
	// maxNameLength is the longest name of a Kubernetes object.
	maxNameLength = 253
)

// parser writes the samples of one body into a node's state. A bad line costs only
// that line.
type parser struct {
	state *nodeState
	// now is the time of samples without a timestamp, Unix ms.
	now   int64
	stats parseStats

	// name and family are those of the last line, which most lines repeat.
	name   []byte
	family family
	// expected is the container that came next in the last body. If it comes next
	// again, its labels need not be parsed.
	expected *container
}

// lines parses whole lines, each with its newline.
func (p *parser) lines(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		p.line(b[:i])
		b = b[i+1:]
	}
	// The buffer is about to be overwritten.
	p.name = nil
}

// skipLine counts a line that textparse.ReadLines skipped.
func (p *parser) skipLine(line []byte, truncated bool) {
	reason := skipMalformed
	if truncated {
		reason = skipTruncated
	}
	p.stats.skip(reason, line)
}

func (p *parser) line(line []byte) {
	rest := p.metricName(textparse.TrimBlanks(line))
	var c *container
	reason := skipNone
	switch p.family {
	case familyOther:
		return
	case podCPU:
		p.podCPU(rest)
		return
	case nodeCPU, nodeMemory, nodeSwap, scrapeError:
		c = &p.state.node
		if len(rest) > 0 && rest[0] == '{' {
			_, end, ok := textparse.ParseLabels(rest)
			if !ok {
				reason = skipMalformed
			}
			rest = rest[end:]
		}
	default:
		c, rest, reason = p.container(rest)
	}
	if reason == skipNone {
		reason = p.sample(c, rest)
	}
	if reason != skipNone {
		p.stats.skip(reason, line)
	}
}

// metricName sets p.family, and returns what follows the metric name.
func (p *parser) metricName(b []byte) []byte {
	if n := len(p.name); n > 0 && len(b) > n && b[n] == '{' && bytes.Equal(b[:n], p.name) {
		return b[n:]
	}
	var rest []byte
	p.name, rest = textparse.MetricName(b)
	if p.name == nil {
		p.family = familyOther
		return nil
	}
	last := p.family
	p.family = familyOf(p.name)
	if p.family != last {
		p.expected = p.state.first
	}
	return rest
}

// container returns the container that a line's labels identify, and what follows
// them.
func (p *parser) container(b []byte) (*container, []byte, skipReason) {
	if len(b) == 0 || b[0] != '{' {
		return nil, nil, skipLabels
	}
	c, end := p.expected, 0
	if c != nil {
		end = c.labelsEnd(b)
	}
	if end == 0 {
		labels, labelsEnd, ok := textparse.ParseLabels(b)
		if !ok {
			return nil, nil, skipMalformed
		}
		end = labelsEnd
		if !validName(labels.Container) || !validName(labels.Pod) || !validName(labels.Namespace) {
			return nil, nil, skipLabels
		}
		if c = p.state.container(labels); c == nil {
			return nil, nil, skipTooMany
		}
	}
	p.expected = p.state.markFound(c)
	return c, b[end:], skipNone
}

// validName reports whether a label's value can be the name of a namespace, a pod
// or a container. Names of containers are served as they are, and so would be
// anything that is in them.
func validName(b []byte) bool {
	if len(b) == 0 || len(b) > maxNameLength {
		return false
	}
	for _, c := range b {
		if (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}

// sample parses a line's value and timestamp, and sets that of its family. The
// first of duplicates wins.
func (p *parser) sample(c *container, b []byte) skipReason {
	value, at, ok := textparse.ParseSample(b, p.now)
	switch {
	case !ok:
		return skipMalformed
	case math.IsNaN(value) || math.IsInf(value, 0):
		return skipNotFinite
	case value < 0:
		return skipNegative
	case p.family == containerStart:
		// The value is the time. Kubelets up to 1.28 add it as timestamp, too.
	case at > p.now+maxFuture.Milliseconds():
		p.stats.ahead = max(p.stats.ahead, time.Duration(at-p.now)*time.Millisecond)
		return skipFuture
	case at < p.now-maxPast.Milliseconds():
		if age := time.Duration(p.now-at) * time.Millisecond; p.stats.behind == 0 || age < p.stats.behind {
			p.stats.behind = age
		}
		return skipOld
	}
	switch p.family {
	case containerCPU, nodeCPU:
		if value > maxCPU {
			return skipTooLarge
		}
		if !c.add(seriesCPU) {
			return skipDuplicate
		}
		c.cpu, c.cpuTime = value, at
		p.stats.samples++
	case containerMemory, nodeMemory:
		if value > maxBytes {
			return skipTooLarge
		}
		if !c.add(seriesMemory) {
			return skipDuplicate
		}
		c.memory = uint64(value)
		p.stats.samples++
	case containerSwap, nodeSwap:
		if value > maxBytes {
			return skipTooLarge
		}
		if !c.add(seriesSwap) {
			return skipDuplicate
		}
		c.swap = uint64(value)
	case containerStart:
		start := value * 1000
		if start > float64(p.now+maxFuture.Milliseconds()) {
			return skipFuture
		}
		if !c.add(seriesStart) {
			return skipDuplicate
		}
		c.start = int64(start)
	case scrapeError:
		p.stats.kubeletFailed = p.stats.kubeletFailed || value != 0
	}
	return skipNone
}
