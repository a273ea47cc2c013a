// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/metrics/pkg/apis/metrics"
	metricsinstall "k8s.io/metrics/pkg/apis/metrics/install"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// apiScheme and apiCodecs are those of metrics.k8s.io.
var (
	apiScheme = newAPIScheme()
	apiCodecs = serializer.NewCodecFactory(apiScheme)
)

func newAPIScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metricsinstall.Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// apiItem is a point whose event is one of PodMetrics, encoded by the stock
// encoder, once.
type apiItem struct {
	*point.Object
	encodes *atomic.Int64
}

func (i apiItem) ItemKey() point.Key            { return i.Key }
func (i apiItem) ItemLabels() map[string]string { return i.Meta.Labels }
func (i apiItem) ItemSequence() uint64          { return i.Sequence }

func (i apiItem) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	b, err := i.Events.Encoded(string(id), func() ([]byte, error) {
		i.encodes.Add(1)
		var b bytes.Buffer
		err := encode(podMetrics(i.Object), &b)
		return b.Bytes(), err
	})
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func podMetrics(o *point.Object) *metrics.PodMetrics {
	pod := &metrics.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: o.Meta.Labels, ResourceVersion: o.Point.ResourceVersion(),
		},
		Timestamp: metav1.Time{Time: o.Point.Time}, Window: metav1.Duration{Duration: o.Point.Window},
	}
	for _, u := range o.Point.Usages {
		pod.Containers = append(pod.Containers, metrics.ContainerMetrics{Name: u.Name, Usage: corev1.ResourceList{
			corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(u.CPU), resource.Nano),
			corev1.ResourceMemory: *resource.NewQuantity(int64(u.Memory), resource.BinarySI),
		}})
	}
	return pod
}

// apiSource is a table as a source of apiItems.
type apiSource struct {
	*point.Table
	encodes atomic.Int64
}

func (s *apiSource) item(o *point.Object) Item { return apiItem{o, &s.encodes} }

func (s *apiSource) Get(key point.Key) Item {
	if o := s.Table.Get(key); o != nil {
		return s.item(o)
	}
	return nil
}

func (s *apiSource) Select(namespace string, required []point.Label, after point.Key) iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for o := range s.Table.Select(namespace, required, after) {
			if !yield(s.item(o)) {
				return
			}
		}
	}
}

// feed publishes the table's points to a hub.
func (s *apiSource) feed(h *Hub) {
	s.Observe(func(objects []*point.Object) {
		items := make([]Item, len(objects))
		for i, o := range objects {
			items[i] = s.item(o)
		}
		h.Publish(items)
	})
}

// watchEncode is what the API server's watch handler does with an object whose
// bytes nobody kept.
func watchEncode(embedded, stream runtime.Encoder) func(runtime.Object, io.Writer) error {
	return func(o runtime.Object, w io.Writer) error {
		var b, e bytes.Buffer
		if err := embedded.Encode(o, &b); err != nil {
			return err
		}
		event := &metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: b.Bytes()}}
		if err := stream.Encode(event, &e); err != nil {
			return err
		}
		_, err := w.Write(e.Bytes())
		return err
	}
}

// decodeEvents reads a stream of JSON events.
func decodeEvents(r io.Reader, each func(typ string, object []byte) bool) error {
	decoder := json.NewDecoder(r)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		if !each(e.Type, e.Object) {
			return nil
		}
	}
}
