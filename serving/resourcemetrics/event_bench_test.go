// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"io"
	goruntime "runtime"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// BenchmarkEvent writes the watch events of 30,000 pods: the first time in an
// encoding (cold), to each watcher after that (warm), and as the API server's
// watch handler does it for each watcher (stock).
func BenchmarkEvent(b *testing.B) {
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		store := cluster(100, 300)
		encoder := stockEventEncoders()["v1 "+mediaType]
		deliver := func(b *testing.B) {
			for o := range store.Pods.List("", samplestore.Key{}) {
				if err := pods.item(o).CacheEncode(encoder.id, encoder.encode, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		}
		perEvent := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*30000), "ns/event")
		}
		b.Run(mediaType+"/cold", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				republish(store)
				b.StartTimer()
				deliver(b)
			}
			perEvent(b)
		})
		b.Run(mediaType+"/warm", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				deliver(b)
			}
			perEvent(b)
		})
		b.Run(mediaType+"/stock", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for o := range store.Pods.List("", samplestore.Key{}) {
					if err := encoder.encode((&object{kind: pods, point: o}).GetObject(), io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			}
			perEvent(b)
		})
	}
}

// BenchmarkEncodedMemory is what 30,000 pods keep of their encodings, one after
// the other: watched in v1, watched in v1beta1 as well, and listed.
func BenchmarkEncodedMemory(b *testing.B) {
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		b.Run(mediaType, func(b *testing.B) {
			store := cluster(100, 300)
			for b.Loop() {
				republish(store)
				before := heap.InUse()
				for _, version := range []string{"v1", "v1beta1"} {
					encoder := stockEventEncoders()[version+" "+mediaType]
					for o := range store.Pods.List("", samplestore.Key{}) {
						if err := pods.item(o).CacheEncode(encoder.id, encoder.encode, io.Discard); err != nil {
							b.Fatal(err)
						}
					}
					after := heap.InUse()
					b.ReportMetric((after-before)/30000, version+"-B/pod")
					before = after
				}
				for o := range store.Pods.List("", samplestore.Key{}) {
					if err := encoderFor(b, mediaType).Encode(&object{kind: pods, point: o}, io.Discard); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric((heap.InUse()-before)/30000, "list-B/pod")
			}
			goruntime.KeepAlive(store)
		})
	}
}
