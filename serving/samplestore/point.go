// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package samplestore stores the newest data point of each node and pod with its
// metadata, numbers the points, and notifies an observer of new ones.
//
// Points and objects are immutable once published. Lists load pointers and hold
// locks only to find an index, so a list never waits for a scrape nor a scrape for
// a list.
package samplestore

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Usage is the resource usage of one container, or of a node.
type Usage struct {
	// Name of the container; empty for a node.
	Name string
	// CPU in nanocores, averaged over the point's window.
	CPU uint64
	// Memory is the working set in bytes, the latest value.
	Memory uint64
	// Swap in bytes, the latest value; valid only if HasSwap is true, since
	// kubelets without swap accounting do not report it.
	Swap    uint64
	HasSwap bool
}

// Point is one data point of a node or a pod.
type Point struct {
	// Time is the end of the window: the earliest sample time among Usages, since
	// a sum over containers is only as new as its oldest part.
	Time Time
	// Window over which CPU was averaged, of the same sample as Time.
	Window time.Duration
	// Newest is the newest sample time among Usages. It identifies the samples
	// and becomes the resourceVersion.
	Newest Time
	// Started is the latest start time of the containers; zero for a node.
	Started Time
	// Node is the name of the node whose kubelet reported the point.
	Node string
	// Usages of a pod's containers ordered by name, or the single one of a node.
	Usages []Usage
}

// ResourceVersion returns the newest sample's time in decimal milliseconds. It
// differs between data points of an object, and is equal across replicas.
func (p *Point) ResourceVersion() string {
	return strconv.FormatInt(int64(p.Newest), 10)
}

// Key identifies a pod, or a node if Namespace is empty.
type Key struct {
	Namespace, Name string
}

// Compare orders keys by namespace, then by name.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	return strings.Compare(k.Name, o.Name)
}

// Meta is the part of an object's metadata that is kept. It is immutable.
type Meta struct {
	UID    types.UID
	Labels map[string]string
	// Created is the creation time of a pod, in whole seconds of kube-apiserver's
	// clock; zero if it is not known, as for nodes.
	Created Time
}

// Encoding is an encoding of an object that is cached for watches.
type Encoding int

// The cached encodings. The cached bytes are the same in all API versions.
const (
	EncodingJSON Encoding = iota
	EncodingProtobuf
	encodings
)

// Object is a point with the metadata that was current when it was published. It
// is immutable: a change of either makes a new Object.
type Object struct {
	Key
	Meta  *Meta
	Point *Point
	// Sequence is the number of the data point in its collection, in increasing order.
	// It is the time at which the point was stored, in nanoseconds since the collection
	// was created, or one more than the previous number if that is greater. So the
	// storage time of a point takes no extra memory. A change of metadata keeps it.
	Sequence uint64

	// Events caches the encoded watch events of the object.
	Events Encodings

	fragments [encodings]lazy[[]byte]
}

// Encoded returns the object's encoded bytes. It calls encode on first use, once
// also under concurrent calls. Errors are not cached.
func (o *Object) Encoded(e Encoding, encode func(*Object) ([]byte, error)) ([]byte, error) {
	return o.fragments[e].get(func() ([]byte, error) { return encode(o) })
}

// Time is the time of a sample in milliseconds since 1970 UTC, as kubelets and
// Prometheus give it; zero is no time. It takes a third of the memory of a time.Time.
type Time int64

const second Time = 1000

// TimeOf returns t in milliseconds, and zero for the zero time.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMilli())
}

// AsTime returns t as a time.Time, and the zero time for zero.
func (t Time) AsTime() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(t))
}

// Unix returns t in seconds since 1970 UTC.
func (t Time) Unix() int64 { return t.AsTime().Unix() }
