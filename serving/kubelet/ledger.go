// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

const (
	// maxContainers bounds what is kept of one node. A kubelet's default is 110
	// pods; the largest nodes in use run about a thousand.
	maxContainers = 20000
	// maxPodContainers bounds the containers of one pod; the size of a Pod
	// object does not let it have as many.
	maxPodContainers = 1000
)

// ledger is what is kept of one node between scrapes: for each container that
// its kubelet reported last, the newest samples and the rate. It belongs to the
// scrape under way and has no lock.
type ledger struct {
	// body numbers the bodies; what carries another number was not in this one.
	body uint64
	node container
	pods map[samplestore.Key]*pod
	// containers counts those of all pods.
	containers int
	// first and last are the ends of the chain of containers in the order of the
	// newest body, which most likely is the order of the next one.
	first, last *container
}

type pod struct {
	key samplestore.Key
	// containers ordered by name.
	containers []*container
	// published is the newest sample of the last published point, Unix ms.
	published int64
	// newest and started are set by settle for a pod that is ready to publish.
	newest, started int64
	running         int
}

// got is the set of series that the current body has of a container.
type got uint8

const (
	gotCPU got = 1 << iota
	gotMemory
	gotStart
	gotSwap
)

// container is a container, or the node as a whole. There are as many as in the
// cluster, so its fields are kept few and small. Times are Unix milliseconds.
type container struct {
	// raw is the text of the labels, without braces, of at most maxLabels bytes;
	// the name is a part of it.
	raw string
	// next in the order of the last body.
	next            *container
	nameAt, nameEnd uint16

	got got
	// standing is what the samples of the last whole body amount to.
	standing standing
	// committed is false until a whole body that had the container was read.
	committed bool
	// idle: the newest sample says that no process runs in it.
	idle bool

	// body that last had the container; the samples are those of that body.
	body    uint64
	cpu     float64 // core-seconds
	cpuTime int64
	memory  uint64 // bytes
	swap    uint64 // bytes
	start   int64  // 0: not known

	base base
	rate cpuRate
}

// base is the sample from which the next rate is taken.
type base struct {
	cpu float64
	// time is 0 where there is no sample.
	time  int64
	start int64
}

func (b base) known() bool { return b.time != 0 }

// cpuRate is the newest rate.
type cpuRate struct {
	// cpu in nanocores over window, which ends at time. Both in milliseconds;
	// window is 0 where there is no rate.
	cpu    uint64
	window int64
	time   int64
}

func (r cpuRate) known() bool { return r.window != 0 }

func (c *container) name() string { return c.raw[c.nameAt:c.nameEnd] }

// begin starts a new body.
func (l *ledger) begin() {
	l.body++
	l.last = nil
	l.node.reset(l.body)
}

func (c *container) reset(body uint64) { c.body, c.got, c.start = body, 0, 0 }

// take marks a series as seen; false when the body had it before.
func (c *container) take(g got) bool {
	if c.got&g != 0 {
		return false
	}
	c.got |= g
	return true
}

// container finds or makes the container of the labels; nil where there are too
// many. raw is the labels' text.
func (l *ledger) container(labels containerLabels, raw []byte) *container {
	key := samplestore.Key{Namespace: borrow(labels.namespace), Name: borrow(labels.pod)}
	p := l.pods[key]
	if p != nil {
		i, found := p.search(borrow(labels.container))
		if found {
			c := p.containers[i]
			if c.raw != string(raw) {
				// The same labels in another order or spelling.
				c.keepLabels(labels, raw)
			}
			return c
		}
	}
	if l.containers >= maxContainers || p != nil && len(p.containers) >= maxPodContainers {
		return nil
	}
	c := &container{}
	c.keepLabels(labels, raw)
	if p == nil {
		p = &pod{key: samplestore.Key{Namespace: string(labels.namespace), Name: string(labels.pod)}}
		if l.pods == nil {
			l.pods = map[samplestore.Key]*pod{}
		}
		l.pods[p.key] = p
	}
	i, _ := p.search(c.name())
	p.containers = slices.Insert(p.containers, i, c)
	l.containers++
	return c
}

// keepLabels copies the labels' text, which is a part of a pooled buffer.
func (c *container) keepLabels(labels containerLabels, raw []byte) {
	c.raw = string(raw)
	// The first place where the text stands, though it may be in another label.
	i := bytes.Index(raw, labels.container)
	c.nameAt, c.nameEnd = uint16(i), uint16(i+len(labels.container))
}

func (p *pod) search(name string) (int, bool) {
	return slices.BinarySearchFunc(p.containers, name, func(c *container, name string) int { return strings.Compare(c.name(), name) })
}

// touch marks a container as seen in this body, and returns the one that came
// after it in the last body, as the guess for the next line.
func (l *ledger) touch(c *container) (expected *container) {
	expected = c.next
	if c.body == l.body {
		return expected
	}
	c.reset(l.body)
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	return expected
}

// commit drops what the body, which was read to its end, did not have.
func (l *ledger) commit() {
	l.sweep(func(c *container) bool {
		c.committed = true
		return c.body == l.body
	})
	if l.last == nil {
		l.first = nil
	} else {
		l.last.next = nil
	}
}

// abort forgets a body that was not read to its end: what only it had is
// dropped, everything else stays as it was before.
func (l *ledger) abort() {
	l.sweep(func(c *container) bool { return c.committed })
	// The chain may lead through containers that were dropped.
	l.first = nil
	for _, p := range l.pods {
		for _, c := range p.containers {
			c.next = nil
		}
	}
}

func (l *ledger) sweep(keep func(*container) bool) {
	l.containers = 0
	for key, p := range l.pods {
		p.containers = slices.DeleteFunc(p.containers, func(c *container) bool { return !keep(c) })
		if len(p.containers) == 0 {
			delete(l.pods, key)
		}
		l.containers += len(p.containers)
	}
}

// borrow makes a string of bytes that will change; it is good for a lookup only.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func instant(ms int64) time.Time { return time.UnixMilli(ms) }
