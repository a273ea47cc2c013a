// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"strings"
	"unique"
	"unsafe"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet/textparse"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

const (
	// maxContainers bounds the state of one node. A kubelet's default is 110 pods;
	// the largest nodes in use run about a thousand.
	maxContainers = 20000
	// maxPodContainers bounds the containers of one pod; the size limit of Pod
	// objects allows fewer.
	maxPodContainers = 1000
)

// nodeState is the state of one node between scrapes: the newest samples and rates
// of the containers in the last body. The running scrape owns it, without a lock.
type nodeState struct {
	// body numbers the bodies. A container with another number is not in this one.
	body uint32
	node container
	pods map[samplestore.Key]*pod
	// containers counts those of all pods.
	containers int
	// first and last are the ends of the list of containers in the order of the
	// newest body, which usually is the order of the next one.
	first, last *container
	// sampled is the time of the newest sample of the last whole body, by the node's own
	// sample if it has one, Unix ms.
	sampled int64
	// incomplete is set by points: the node or a running container has no rate or no memory.
	incomplete bool
	missing    missingPods
}

type pod struct {
	// key shares the text of the namespace as long as the handle is kept.
	key       samplestore.Key
	namespace unique.Handle[string]
	// containers are ordered by name.
	containers []*container
	// published is the newest sample of the last published point, Unix ms.
	published int64
	// newest, started and running are set by update: the newest sample and start, in
	// Unix ms, and the number of running containers.
	newest, started int64
	running         int32
	// whole is set by update: the rate and the memory of each running container are
	// known, and not all memory is zero. Without it the pod has no new point.
	whole bool
}

// series is a set of series of a container.
type series uint8

const (
	seriesCPU series = 1 << iota
	seriesMemory
	seriesStart
	seriesSwap
)

// container is the state of a container, or of the node as a whole. There are as
// many as in the cluster, so it is kept small. Times are in Unix milliseconds.
type container struct {
	// label is the container's name, which many have in common.
	label unique.Handle[string]
	pod   *pod // nil for the node
	// next is the container after this one in the last body.
	next *container

	// found holds the series that the current body has of the container.
	found  series
	status containerStatus
	// committed is false until a whole body with the container was read.
	committed bool
	// idle reports that, by the newest sample, no process runs in the container.
	idle bool

	// body is the last body with the container; the samples are of that body.
	body    uint32
	cpu     float64 // core-seconds
	cpuTime int64
	memory  uint64 // bytes
	swap    uint64 // bytes
	start   int64  // 0: unknown

	baseline baseline
	rate     cpuRate
}

// baseline is the sample from which the next rate is calculated.
type baseline struct {
	cpu float64
	// time is 0 if there is no sample, or negated the time of the node's last body,
	// which did not have the container.
	time int64
	// start is the first one that was reported of this run of the container.
	start int64
}

func (b baseline) known() bool { return b.time > 0 }

// runsAfter returns the time after which another run of the container starts: that of its last
// sample, or of the node's last body, which did not have it. It is 0 if there is neither.
func (b baseline) runsAfter() int64 { return max(b.time, -b.time) }

// cpuRate is the newest rate.
type cpuRate struct {
	// cpu in nanocores over window, which ends at time; both in milliseconds.
	// window is 0 if there is no rate.
	cpu    uint64
	window int64
	time   int64
}

func (r cpuRate) known() bool { return r.window != 0 }

// name returns the container's name; the node has none.
func (c *container) name() string {
	if c.pod == nil {
		return ""
	}
	return c.label.Value()
}

// labelsEnd returns the index after the labels with which b begins if they are the
// container's, written as a kubelet writes them. Otherwise it returns 0.
func (c *container) labelsEnd(b []byte) int {
	const first, second, third, last = `{container="`, `",namespace="`, `",pod="`, `"}`
	name := len(first)
	label := c.name()
	nameEnd := name + len(label)
	namespace := nameEnd + len(second)
	namespaceEnd := namespace + len(c.pod.key.Namespace)
	pod := namespaceEnd + len(third)
	podEnd := pod + len(c.pod.key.Name)
	end := podEnd + len(last)
	if len(b) >= end &&
		string(b[podEnd:end]) == last && string(b[pod:podEnd]) == c.pod.key.Name &&
		string(b[:name]) == first && string(b[name:nameEnd]) == label &&
		string(b[nameEnd:namespace]) == second && string(b[namespace:namespaceEnd]) == c.pod.key.Namespace &&
		string(b[namespaceEnd:pod]) == third {
		return end
	}
	return 0
}

// String returns namespace, pod and container, for messages.
func (c *container) String() string {
	if c.pod == nil {
		return "the node"
	}
	return c.pod.key.Namespace + "/" + c.pod.key.Name + "/" + c.name()
}

func (c *container) has(s series) bool { return c.found&s == s }

// begin starts a new body.
func (s *nodeState) begin() {
	s.body++
	s.last, s.missing.counters = nil, 0
	s.node.begin(s.body)
}

func (c *container) begin(body uint32) { c.body, c.found, c.start = body, 0, 0 }

// add adds a series to those found. It returns false for a duplicate.
func (c *container) add(s series) bool {
	if c.has(s) {
		return false
	}
	c.found |= s
	return true
}

// container returns the container with the labels, adding it if needed, or nil if
// there are too many.
func (s *nodeState) container(labels textparse.Labels) *container {
	key := samplestore.Key{Namespace: unsafeString(labels.Namespace), Name: unsafeString(labels.Pod)}
	p := s.pods[key]
	if p != nil {
		if i, found := p.search(unsafeString(labels.Container)); found {
			return p.containers[i]
		}
	}
	if s.containers >= maxContainers || p != nil && len(p.containers) >= maxPodContainers {
		return nil
	}
	if p == nil {
		p = &pod{namespace: unique.Make(string(labels.Namespace))}
		p.key = samplestore.Key{Namespace: p.namespace.Value(), Name: string(labels.Pod)}
		if s.pods == nil {
			s.pods = map[samplestore.Key]*pod{}
		}
		s.pods[p.key] = p
	}
	c := &container{label: unique.Make(string(labels.Container)), pod: p, baseline: baseline{time: -s.sampled}}
	i, _ := p.search(c.name())
	p.containers = slices.Insert(p.containers, i, c)
	s.containers++
	return c
}

func (p *pod) search(name string) (int, bool) {
	return slices.BinarySearchFunc(p.containers, name, func(c *container, name string) int { return strings.Compare(c.name(), name) })
}

// markFound marks a container as found in this body, and returns the one that
// followed it in the last body, as the guess for the next line.
func (s *nodeState) markFound(c *container) (expected *container) {
	expected = c.next
	if c.body == s.body {
		return expected
	}
	c.begin(s.body)
	if s.last == nil {
		s.first = c
	} else {
		s.last.next = c
	}
	s.last = c
	return expected
}

// commit ends a body that was read completely, and removes what it does not have.
func (s *nodeState) commit() {
	s.keep(func(c *container) bool {
		c.committed = true
		return c.body == s.body
	})
	at, _ := s.newest()
	s.sampled = int64(samplestore.TimeOf(at))
	if s.last == nil {
		s.first = nil
	} else {
		s.last.next = nil
	}
}

// abort ends a body that was not read completely: it removes what only this body
// had and keeps the rest as it was.
func (s *nodeState) abort() {
	s.keep(func(c *container) bool { return c.committed })
	// The list may contain removed containers.
	s.first = nil
	for _, p := range s.pods {
		for _, c := range p.containers {
			c.next = nil
		}
	}
}

// keep removes the containers for which keep is false, and empty pods.
func (s *nodeState) keep(keep func(*container) bool) {
	s.containers = 0
	for key, p := range s.pods {
		p.containers = slices.DeleteFunc(p.containers, func(c *container) bool { return !keep(c) })
		if len(p.containers) == 0 {
			delete(s.pods, key)
		}
		s.containers += len(p.containers)
	}
}

// unsafeString returns a string that shares b, to be used for lookups only.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
