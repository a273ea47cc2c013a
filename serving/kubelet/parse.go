// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"math"
	"time"
)

// family is a metric family of /metrics/resource that is read. The names are
// stable since KEP-727, but for the two of swap.
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
	}
	return familyOther
}

const (
	// maxFuture is how far a sample may be ahead of our clock. It bounds how
	// long a node's points stand still when its clock is set back.
	maxFuture = 2 * time.Minute
	// maxPast is how old a sample may be: no maxAge would let it be served.
	maxPast = time.Hour
	// maxCPU in core-seconds is where the kubelet's own counter, in nanoseconds
	// of 64 bits, ends.
	maxCPU = 1 << 64 / 1e9
	// maxBytes is 8 PiB: no node has more, and above a float64 skips integers.
	maxBytes = 1 << 53
	// maxLabels is the longest text of a container's labels, in bytes. It is kept
	// between scrapes; three names of maxNameLength need less than half of it.
	maxLabels = 2 << 10
)

// parser reads one body's lines into a ledger. A bad line costs that line.
type parser struct {
	ledger *ledger
	// now in Unix milliseconds, the time of samples that do not tell theirs.
	now   int64
	tally tally

	// name and family are those of the last line: most lines repeat them.
	name   []byte
	family family
	// expected is the container that came next in the last body. Where it comes
	// next again, its labels need not be parsed.
	expected *container
}

// lines parses whole lines, each with its newline.
func (p *parser) lines(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		p.line(b[:i])
		b = b[i+1:]
	}
	// The buffer behind it is about to be overwritten.
	p.name = nil
}

func (p *parser) line(b []byte) {
	rest := p.metricName(trimBlanks(b))
	if p.family == familyOther {
		return
	}
	switch p.family {
	case nodeCPU, nodeMemory, nodeSwap, scrapeError:
		if len(rest) > 0 && rest[0] == '{' {
			_, end, ok := parseLabels(rest)
			if !ok {
				p.skip(skipMalformed, b)
				return
			}
			rest = rest[end:]
		}
		p.sample(&p.ledger.node, rest, b)
	default:
		c, rest := p.container(rest, b)
		if c == nil {
			return
		}
		p.sample(c, rest, b)
	}
}

// metricName reads the name, sets p.family, and returns what follows.
func (p *parser) metricName(b []byte) []byte {
	if n := len(p.name); n > 0 && len(b) > n && b[n] == '{' && bytes.Equal(b[:n], p.name) {
		return b[n:]
	}
	n := 0
	for n < len(b) && b[n] != '{' && b[n] != ' ' && b[n] != '\t' {
		n++
	}
	if n == 0 || b[0] == '#' {
		p.family = familyOther
		p.name = nil
		return nil
	}
	before := p.family
	p.name = b[:n]
	p.family = familyOf(p.name)
	if p.family != before {
		p.expected = p.ledger.first
	}
	return trimBlanks(b[n:])
}

// container finds the container that a line's labels name, and returns it with
// what follows the labels; nil where the line was skipped.
func (p *parser) container(b, line []byte) (*container, []byte) {
	c := p.expected
	var end int
	switch {
	case len(b) == 0 || b[0] != '{':
		p.skip(skipLabels, line)
		return nil, nil
	case c != nil && len(b) > len(c.raw)+1 && b[len(c.raw)+1] == '}' && string(b[1:1+len(c.raw)]) == c.raw:
		end = len(c.raw) + 2
	default:
		labels, labelsEnd, ok := parseLabels(b)
		if !ok {
			p.skip(skipMalformed, line)
			return nil, nil
		}
		if !validName(labels.container) || !validName(labels.pod) || !validName(labels.namespace) {
			p.skip(skipLabels, line)
			return nil, nil
		}
		if end = labelsEnd; end-2 > maxLabels {
			p.skip(skipLabels, line)
			return nil, nil
		}
		if c = p.ledger.container(labels, b[1:end-1]); c == nil {
			p.skip(skipTooMany, line)
			return nil, nil
		}
	}
	p.expected = p.ledger.touch(c)
	return c, b[end:]
}

// sample reads a line's value and timestamp, and records them.
func (p *parser) sample(c *container, b, line []byte) {
	value, at, reason := p.valueAndTime(b)
	if reason == skipNone {
		reason = p.record(c, value, at)
	}
	if reason != skipNone {
		p.skip(reason, line)
	}
}

func (p *parser) valueAndTime(b []byte) (value float64, at int64, reason skipReason) {
	b = trimBlanks(b)
	n := tokenEnd(b)
	value, ok := parseFloat(b[:n])
	if !ok {
		return 0, 0, skipMalformed
	}
	at = p.now
	if b = trimBlanks(b[n:]); len(b) > 0 {
		n = tokenEnd(b)
		at, ok = parseInt(b[:n])
		if !ok || len(trimBlanks(b[n:])) > 0 {
			return 0, 0, skipMalformed
		}
	}
	switch {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return 0, 0, skipNotFinite
	case value < 0:
		return 0, 0, skipNegative
	case at > p.now+maxFuture.Milliseconds():
		p.tally.ahead = max(p.tally.ahead, time.Duration(at-p.now)*time.Millisecond)
		return 0, 0, skipFuture
	case at < p.now-maxPast.Milliseconds():
		return 0, 0, skipOld
	}
	return value, at, skipNone
}

// record writes a sample to where it belongs; the first of duplicates wins.
func (p *parser) record(c *container, value float64, at int64) skipReason {
	switch p.family {
	case containerCPU, nodeCPU:
		if value > maxCPU {
			return skipTooLarge
		}
		if !c.take(gotCPU) {
			return skipDuplicate
		}
		c.cpu, c.cpuTime = value, at
		p.tally.samples++
	case containerMemory, nodeMemory:
		if value > maxBytes {
			return skipTooLarge
		}
		if !c.take(gotMemory) {
			return skipDuplicate
		}
		c.memory = uint64(value)
		p.tally.samples++
	case containerSwap, nodeSwap:
		if value > maxBytes {
			return skipTooLarge
		}
		if !c.take(gotSwap) {
			return skipDuplicate
		}
		c.swap = uint64(value)
	case containerStart:
		// The value is what counts here: the kubelet gives it no timestamp.
		start := value * 1000
		if start > float64(p.now+maxFuture.Milliseconds()) {
			return skipFuture
		}
		if !c.take(gotStart) {
			return skipDuplicate
		}
		c.start = int64(start)
	case scrapeError:
		p.tally.kubeletFailed = p.tally.kubeletFailed || value != 0
	}
	return skipNone
}

func (p *parser) skip(reason skipReason, line []byte) { p.tally.skip(reason, line) }

func trimBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

func tokenEnd(b []byte) int {
	for i, c := range b {
		if c == ' ' || c == '\t' {
			return i
		}
	}
	return len(b)
}
