// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/metrics"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// eventEncoder is how the API server's watch handler encodes an event that says
// ADDED, and by which identifier it calls that.
type eventEncoder struct {
	id     runtime.Identifier
	encode func(runtime.Object, io.Writer) error
}

// stockEventEncoders are those of JSON and protobuf, by version and media type.
func stockEventEncoders() map[string]eventEncoder {
	all := map[string]eventEncoder{}
	for _, version := range GroupVersions() {
		for _, info := range codecs.SupportedMediaTypes() {
			if info.StreamSerializer == nil {
				continue
			}
			embedded := codecs.EncoderForVersion(info.Serializer, version)
			whole := codecs.EncoderForVersion(info.StreamSerializer.Serializer, version)
			id := addedIdentifier(embedded, whole)
			all[version.Version+" "+info.MediaType] = eventEncoder{id, func(o runtime.Object, w io.Writer) error {
				var object, event bytes.Buffer
				if err := embedded.Encode(o, &object); err != nil {
					return err
				}
				err := whole.Encode(&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: object.Bytes()}}, &event)
				if err != nil {
					return err
				}
				_, err = w.Write(event.Bytes())
				return err
			}}
		}
	}
	return all
}

// TestEventBytes compares events with those of the stock encoders.
func TestEventBytes(t *testing.T) {
	for name, o := range shapes() {
		for _, k := range []*kind{nodes, pods} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				fresh := &samplestore.Object{Key: o.Key, Meta: o.Meta, Point: o.Point}
				for name, encoder := range stockEventEncoders() {
					want, got := &frames{}, &frames{}
					wantErr := encoder.encode((&object{kind: k, point: fresh}).GetObject(), want)
					gotErr := k.item(fresh).CacheEncode(encoder.id, encoder.encode, got)
					if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(gotErr)); diff != "" {
						t.Errorf("%s: errors differ (-stock +ours):\n%s", name, diff)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: frames differ (-stock +ours):\n%s", name, diff)
					}
				}
			})
		}
	}
}

// frames takes each write as a frame, as the framers of watches do.
type frames []string

func (f *frames) Write(p []byte) (int, error) {
	*f = append(*f, string(p))
	return len(p), nil
}

// TestEventErrors are what ends a watch.
func TestEventErrors(t *testing.T) {
	store := newStore()
	put(store.Pods, "shop", "web-0", nil, sample(0, samplestore.Usage{Name: "app"}))
	item := pods.item(store.Pods.Get(samplestore.Key{Namespace: "shop", Name: "web-0"}))
	broken := errors.New("broken")
	for name, encoder := range stockEventEncoders() {
		if err := item.CacheEncode(encoder.id, encoder.encode, refusing{broken}); !errors.Is(err, broken) {
			t.Errorf("%s: error of the write: %v", name, err)
		}
	}
	err := item.CacheEncode("unknown", func(runtime.Object, io.Writer) error { return broken }, io.Discard)
	if !errors.Is(err, broken) {
		t.Errorf("error of the encoder: %v", err)
	}
}

type refusing struct{ error }

func (r refusing) Write([]byte) (int, error) { return 0, r.error }

// TestEncodedOnce counts: clients that watch and list in both versions have each
// point encoded once in each encoding.
func TestEncodedOnce(t *testing.T) {
	store := newStore()
	server := serve(t, store, enableAll)
	usage := samplestore.Usage{Name: "app", CPU: 250_000_000, Memory: 3 << 20}
	put(store.Pods, "shop", "web-0", nil, sample(0, usage))
	before := encodedPoints(t)
	accepts := []string{"application/json", "application/vnd.kubernetes.protobuf"}
	var watches []*watching
	for range 3 {
		for _, version := range []string{"v1", "v1beta1"} {
			for _, accept := range accepts {
				w := follow(t, server, version+"/pods?watch=true", accept)
				w.next()
				watches = append(watches, w)
			}
		}
	}
	put(store.Pods, "shop", "web-0", nil, sample(time.Second, usage))
	for _, w := range watches {
		w.next()
	}
	for _, accept := range accepts {
		get(t, server, "/apis/metrics.k8s.io/v1/pods", accept)
		get(t, server, "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/web-0", accept)
	}
	got := encodedPoints(t)
	for encoding := range got {
		got[encoding] -= before[encoding]
	}
	want := map[string]float64{"nodes json": 0, "nodes protobuf": 0, "nodes other": 0, "pods json": 2, "pods protobuf": 2, "pods other": 0}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %v points encoded, want %v", name, got[name], want[name])
		}
	}
}

var testRegistry = func() metrics.KubeRegistry {
	r := metrics.NewKubeRegistry()
	MetricSet.Register(r.MustRegister)
	return r
}()

// encodedPoints reads metrics_api_encoded_points_total.
func encodedPoints(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := testRegistry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["resource"]+" "+labels["encoding"]] = m.GetCounter().GetValue()
		}
	}
	return got
}
