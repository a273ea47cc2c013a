// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samplestore is the ground floor of the serving component: the newest data
// point of each node and pod, its resourceVersion, and the tables that hold them.
//
// A point and an object are immutable once published. Readers take no lock for
// as long as a write lasts: they load pointers, so a list never waits for a
// scrape and a scrape never waits for a list.
package samplestore

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Usage is what one container, or a node as a whole, used.
type Usage struct {
	// Name of the container; empty for a node.
	Name string
	// CPU in nanocores, averaged over the point's window.
	CPU uint64
	// Memory is the working set in bytes, the latest value.
	Memory uint64
	// Swap in bytes, the latest value; it counts only where HasSwap is true,
	// since kubelets without swap accounting do not report it.
	Swap    uint64
	HasSwap bool
}

// Point is one data point of a node or a pod.
type Point struct {
	// Time is the end of the window: the earliest sample among Usages, as a sum
	// over containers is only as new as its oldest part.
	Time time.Time
	// Window over which CPU was averaged, taken from the same sample as Time.
	Window time.Duration
	// Newest is the time of the newest sample among Usages. It identifies the
	// samples and becomes the resourceVersion.
	Newest time.Time
	// Started is the latest start among the containers; zero for a node.
	Started time.Time
	// Node whose kubelet reported the point.
	Node string
	// Usages of a pod's containers ordered by name, or of one node.
	Usages []Usage
}

// ResourceVersion is the newest sample's time in decimal milliseconds: it
// differs for each data point, and is the same on every replica and on replay.
func (p *Point) ResourceVersion() string {
	return strconv.FormatInt(p.Newest.UnixMilli(), 10)
}

// Key names a node (Namespace is empty) or a pod.
type Key struct {
	Namespace, Name string
}

// Compare orders keys by namespace, then by name.
func (k Key) Compare(o Key) int {
	switch {
	case k.Namespace < o.Namespace:
		return -1
	case k.Namespace > o.Namespace:
		return 1
	case k.Name < o.Name:
		return -1
	case k.Name > o.Name:
		return 1
	}
	return 0
}

// Meta is what serving keeps of an object's metadata. It is immutable.
type Meta struct {
	UID    types.UID
	Labels map[string]string
}

// Encoding selects one of an object's cached serialisations.
type Encoding int

// The encodings that are cached. The bytes of a list item do not differ between
// API versions, so a pair of slots serves them all.
const (
	EncodingJSON Encoding = iota
	EncodingProtobuf
	encodings
)

// Object is a point joined with the metadata that was current when it was
// published. A change of either makes a new Object.
type Object struct {
	Key
	Meta  *Meta
	Point *Point
	// Sequence is the number of the data point in its table, greater than those
	// of all points before it. It is the time at which the point was stored, in
	// nanoseconds since the table was made, moved on by one where that is taken:
	// so the time of each of many thousand points takes no memory of its own.
	// It does not change with metadata.
	Sequence uint64

	// Events are the watch events that tell of the object.
	Events Encodings

	fragments [encodings]atomic.Pointer[[]byte]
	// encoding is held by who makes a fragment: thousands of watchers may ask for
	// it at the same moment.
	encoding sync.Mutex
}

// Encoded returns the object's serialisation, which encode makes on first use, once
// however many ask for it at the same time. An error is not kept.
func (o *Object) Encoded(e Encoding, encode func(*Object) ([]byte, error)) ([]byte, error) {
	if b := o.fragments[e].Load(); b != nil {
		return *b, nil
	}
	o.encoding.Lock()
	defer o.encoding.Unlock()
	if b := o.fragments[e].Load(); b != nil {
		return *b, nil
	}
	b, err := encode(o)
	if err != nil {
		return nil, err
	}
	o.fragments[e].Store(&b)
	return b, nil
}
