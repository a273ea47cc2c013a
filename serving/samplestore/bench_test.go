// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"fmt"
	"testing"
	"time"
)

const (
	benchNodes = 1000
	benchPods  = 30 // of each node
)

// benchCollection is a collection of 30,000 pods of two containers in 300 namespaces.
func benchCollection() (*Collection, [][]Update) {
	store, _ := newStore()
	nodes := make([][]Update, benchNodes)
	for n := range nodes {
		nodes[n] = make([]Update, benchPods)
		for i := range nodes[n] {
			key := Key{fmt.Sprintf("namespace-%03d", (n*benchPods+i)%300), fmt.Sprintf("deployment-%04d-%02d", n, i)}
			nodes[n][i] = Update{key, &Point{
				Time: at(0), Newest: at(0), Started: at(-100), Window: 15 * time.Second, Node: fmt.Sprintf("node-%04d", n),
				Usages: []Usage{{Name: "a", CPU: 1, Memory: 1}, {Name: "b", CPU: 1, Memory: 1}},
			}}
			store.Pods.SetMeta(key, meta("u"))
		}
		store.Pods.Publish(nodes[n])
	}
	return store.Pods, nodes
}

// BenchmarkList reads 30,000 pods, as an API server without encoding would.
func BenchmarkList(b *testing.B) {
	collection, _ := benchCollection()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for o := range collection.List("", Key{}) {
			n += len(o.Point.Usages)
		}
		if n != 2*benchNodes*benchPods {
			b.Fatalf("%d containers", n)
		}
	}
}

// BenchmarkListAfterChurn adds what the first list after a new pod costs.
func BenchmarkListAfterChurn(b *testing.B) {
	collection, _ := benchCollection()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		collection.SetMeta(Key{"namespace-000", fmt.Sprintf("new-%d", i)}, meta("u"))
		for range collection.List("", Key{}) {
		}
	}
}

// BenchmarkPublish writes the points of one node's scrape into a collection of 30,000.
func BenchmarkPublish(b *testing.B) {
	collection, nodes := benchCollection()
	updates := make([]Update, benchPods)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		points := make([]Point, benchPods) // as a scrape does
		for j, u := range nodes[i%benchNodes] {
			points[j] = *u.Point
			points[j].Newest = at(i + 1)
			updates[j] = Update{u.Key, &points[j]}
		}
		if n := collection.Publish(updates); n != benchPods {
			b.Fatalf("%d points were accepted", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchPods*2), "ns/container")
}

// BenchmarkSweep looks through 30,000 pods of which none is too old.
func BenchmarkSweep(b *testing.B) {
	collection, _ := benchCollection()
	b.ReportAllocs()
	for b.Loop() {
		if n := collection.Sweep(); n != benchNodes*benchPods {
			b.Fatalf("%d points held", n)
		}
	}
}
