// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"io"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// BenchmarkEvent compares the CPU of an event that is delivered: by this package,
// from the store through the index, the log and the channel, with one encode for
// all watchers; and by an encode for each watcher, as the API server's watch
// handler does it with plain objects, and nothing else.
func BenchmarkEvent(b *testing.B) {
	const watchers = 100
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		info, _ := runtime.SerializerInfoForMediaType(apiCodecs.SupportedMediaTypes(), mediaType)
		version := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
		encode := watchEncode(apiCodecs.EncoderForVersion(info.Serializer, version),
			apiCodecs.EncoderForVersion(info.StreamSerializer.Serializer, version))

		source := &apiSource{Table: point.NewStore(clock.RealClock{}, time.Hour).Pods}
		key := point.Key{Namespace: "default", Name: "web-5d9f8c7b6d-x2x4z"}
		source.SetMeta(key, &point.Meta{UID: "u", Labels: map[string]string{"app": "web", "pod-template-hash": "5d9f8c7b6d", "tier": "front"}})
		round := 0
		publish := func() {
			round++
			source.Publish([]point.Update{{Key: key, Point: &point.Point{
				Time: time.Now(), Newest: t0.Add(time.Duration(round) * time.Millisecond), Window: 15 * time.Second, Node: "n",
				Usages: []point.Usage{{Name: "a", CPU: 123456789, Memory: 64 << 20}, {Name: "b", CPU: 2345678, Memory: 12345 << 10}},
			}}})
		}

		b.Run(fmt.Sprintf("%s/shared", info.MediaTypeSubType), func(b *testing.B) {
			hub := NewHub(source, clock.RealClock{}, func() float64 { return 1 }, usual)
			source.feed(hub)
			all := make([]*Watcher, watchers)
			for i := range all {
				w, err := hub.Watch(quiet(b), Request{Selection: selecting(b, "default", "app=web", ""), Meter: newMeter(b)})
				if err != nil {
					b.Fatal(err)
				}
				defer w.Stop()
				all[i] = w
			}
			source.encodes.Store(0)
			b.ReportAllocs()
			for b.Loop() {
				publish()
				for _, w := range all {
					for len(w.events) > 0 {
						if err := (<-w.events).Object.(*Watcher).CacheEncode("v1", encode, io.Discard); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*watchers), "ns/delivery")
			b.ReportMetric(float64(source.encodes.Load())/float64(b.N), "encodes/op")
		})
		b.Run(fmt.Sprintf("%s/each", info.MediaTypeSubType), func(b *testing.B) {
			source.Observe(nil)
			b.ReportAllocs()
			for b.Loop() {
				publish()
				o := podMetrics(source.Table.Get(key))
				for range watchers {
					if err := encode(o, io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*watchers), "ns/delivery")
		})
	}
}
