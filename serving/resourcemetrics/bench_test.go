// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// cluster fills a store with pods of two containers, of three Deployments in each namespace. The pods of
// a Deployment share their labels. Pods are stored in random order, as scrapes of nodes do, so that
// neighbors in a list are not neighbors in memory.
func cluster(namespaces, podsEach int) *samplestore.Store {
	store := newStore()
	labels := make([]map[string]string, 3*namespaces)
	for i := range labels {
		labels[i] = map[string]string{
			"app.kubernetes.io/name":     "web",
			"app.kubernetes.io/instance": fmt.Sprintf("web-%d", i%3),
			"pod-template-hash":          "7d4b9c6f5d",
		}
	}
	for _, pod := range rand.New(rand.NewPCG(1, 2)).Perm(namespaces * podsEach) {
		n, i := pod/podsEach, pod%podsEach
		put(store.Pods, fmt.Sprintf("namespace-%03d", n), fmt.Sprintf("web-%d-7d4b9c6f5d-%05d", i%3, i), labels[3*n+i%3], sample(0,
			samplestore.Usage{Name: "web", CPU: 123_456_789 + uint64(i), Memory: 200<<20 + uint64(i)<<12},
			samplestore.Usage{Name: "proxy", CPU: 12_345_678 + uint64(i), Memory: 50<<20 + uint64(i)<<12}))
	}
	return store
}

// republish gives every pod a new object, as the next scrape does.
func republish(store *samplestore.Store) {
	for o := range store.Pods.List("", samplestore.Key{}) {
		meta := *o.Meta
		store.Pods.SetMeta(o.Key, &meta)
	}
}

// encoderFor is the encoder that a request for v1 is answered with.
func encoderFor(b *testing.B, mediaType string) runtime.Encoder {
	b.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		b.Fatalf("no serializer for %s", mediaType)
	}
	return codecs.EncoderForVersion(info.Serializer, metricsv1.SchemeGroupVersion)
}

// BenchmarkList lists pods and encodes the answer: from fragments that are there
// (warm), from fragments that have to be made first (cold, as after a scrape of
// all nodes), and with the stock encoder.
func BenchmarkList(b *testing.B) {
	selector := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/instance": "web-1"})
	cases := map[string]struct {
		store     *samplestore.Store
		namespace string
		options   *metainternalversion.ListOptions
	}{
		"30000 pods":                   {store: cluster(100, 300), options: &metainternalversion.ListOptions{}},
		"1000 of 3000 pods by a label": {store: cluster(1, 3000), namespace: "namespace-000", options: &metainternalversion.ListOptions{LabelSelector: selector}},
	}
	for name, c := range cases {
		s := &storage{kind: pods, collection: c.store.Pods, available: available}
		ctx := request.WithNamespace(b.Context(), c.namespace)
		for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			encoder := encoderFor(b, mediaType)
			answer := func(b *testing.B, unwrap bool) {
				obj, err := s.List(ctx, c.options)
				if err != nil {
					b.Fatal(err)
				}
				if unwrap {
					obj = obj.(runtime.CacheableObject).GetObject()
				}
				if err := encoder.Encode(obj, io.Discard); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(name+"/"+mediaType+"/warm", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					answer(b, false)
				}
			})
			b.Run(name+"/"+mediaType+"/cold", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					republish(c.store)
					b.StartTimer()
					answer(b, false)
				}
			})
			b.Run(name+"/"+mediaType+"/stock", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					answer(b, true)
				}
			})
		}
	}
}

// BenchmarkListHTTP is a client's whole request, without TLS.
func BenchmarkListHTTP(b *testing.B) {
	server := serve(b, cluster(100, 300), enableAll)
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		b.Run(mediaType, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if a := get(b, server, "/apis/metrics.k8s.io/v1/pods", mediaType); a.code != http.StatusOK {
					b.Fatalf("got code %d", a.code)
				}
			}
		})
	}
}

// BenchmarkGet is one pod, as the stock encoder and as we write it.
func BenchmarkGet(b *testing.B) {
	store := cluster(1, 1)
	o := &object{kind: pods, point: store.Pods.Get(samplestore.Key{Namespace: "namespace-000", Name: "web-0-7d4b9c6f5d-00000"})}
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		encoder := encoderFor(b, mediaType)
		for name, obj := range map[string]func() runtime.Object{
			"warm": func() runtime.Object { return o },
			"cold": func() runtime.Object {
				return &object{kind: pods, point: &samplestore.Object{Key: o.point.Key, Meta: o.point.Meta, Point: o.point.Point}}
			},
			"stock": o.GetObject,
		} {
			b.Run(mediaType+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := encoder.Encode(obj(), io.Discard); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
