// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// stockEncoders are all encoders that the API group can be asked for, by name.
func stockEncoders() map[string]runtime.Encoder {
	all := map[string]runtime.Encoder{}
	for _, version := range GroupVersions() {
		for _, info := range codecs.SupportedMediaTypes() {
			name := version.Version + " " + info.MediaType
			all[name] = codecs.EncoderForVersion(info.Serializer, version)
			if info.PrettySerializer != nil {
				all[name+" pretty"] = codecs.EncoderForVersion(info.PrettySerializer, version)
			}
		}
	}
	return all
}

// byFragments are the names of those encoders that must never see an API object.
var byFragments = map[string]bool{
	"v1 application/json":                         true,
	"v1 application/json pretty":                  true,
	"v1 application/vnd.kubernetes.protobuf":      true,
	"v1beta1 application/json":                    true,
	"v1beta1 application/json pretty":             true,
	"v1beta1 application/vnd.kubernetes.protobuf": true,
}

// wrapper is what both object and list are.
type wrapper interface {
	runtime.Object
	runtime.CacheableObject
}

// checkEncodings compares a wrapper's bytes with those of the stock encoders for
// the API object that it stands for.
func checkEncodings(t *testing.T, w wrapper) {
	t.Helper()
	for name, encoder := range stockEncoders() {
		var got, want bytes.Buffer
		wantErr := encoder.Encode(w.GetObject(), &want)
		gotErr := encoder.Encode(w, &got)
		if diff := cmp.Diff(fmt.Sprint(wantErr), fmt.Sprint(gotErr)); diff != "" {
			t.Errorf("%s: errors differ (-stock +ours):\n%s", name, diff)
		}
		if wantErr != nil {
			continue // YAML has no form for some control characters
		}
		if strings.HasSuffix(name, "yaml") {
			// The stock YAML encoder does not order keys with digits the same way twice.
			toJSON(t, &got)
			toJSON(t, &want)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%s: bytes differ (-stock +ours):\n%s", name, cmp.Diff(want.String(), got.String()))
		}

		fellBack := false
		err := w.CacheEncode(encoder.Identifier(), func(runtime.Object, io.Writer) error {
			fellBack = true
			return nil
		}, io.Discard)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if fellBack == byFragments[name] {
			t.Errorf("%s: falls back to the stock encoder: %v, want %v", name, fellBack, !byFragments[name])
		}
	}
}

// toJSON replaces a YAML document by the JSON that means the same.
func toJSON(t *testing.T, document *bytes.Buffer) {
	t.Helper()
	out, err := yaml.YAMLToJSON(document.Bytes())
	if err != nil {
		t.Fatalf("not YAML: %v", err)
	}
	document.Reset()
	document.Write(out)
}

func TestObjectBytes(t *testing.T) {
	for name, o := range shapes() {
		for _, k := range []*kind{nodes, pods} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				// A fresh samplestore.Object for each kind: its fragments are one kind's.
				fresh := &samplestore.Object{Key: o.Key, Meta: o.Meta, Point: o.Point}
				checkEncodings(t, &object{kind: k, point: fresh})
			})
		}
	}
}

func TestListBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	tests := map[string]struct {
		meta  metav1.ListMeta
		items int
	}{
		"empty":             {meta: metav1.ListMeta{ResourceVersion: "1"}},
		"no metadata":       {items: 1},
		"one":               {meta: metav1.ListMeta{ResourceVersion: "1788091200250"}, items: 1},
		"a page":            {meta: metav1.ListMeta{ResourceVersion: "7", Continue: "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", RemainingItemCount: new(int64(300))}, items: 200},
		"a last page":       {meta: metav1.ListMeta{ResourceVersion: "7", RemainingItemCount: new(int64(0))}, items: 2},
		"more than a chunk": {meta: metav1.ListMeta{ResourceVersion: "7"}, items: 400},
	}
	for name, test := range tests {
		for _, k := range []*kind{nodes, pods} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				// Not nil: the installer sees to that before it encodes.
				l := &list{ListInterface: &test.meta, Items: []object{}, kind: k}
				for range test.items {
					l.Items = append(l.Items, object{kind: k, point: randomObject(random, k)})
				}
				checkEncodings(t, l)
			})
		}
	}
}

// TestListBytesOfShapes puts the smallest and the largest objects into a list, whose lengths have from one
// to three bytes in protobuf.
func TestListBytesOfShapes(t *testing.T) {
	objects := map[string]*samplestore.Object{
		"small": {Key: samplestore.Key{Name: "n"}, Meta: &samplestore.Meta{}, Point: &samplestore.Point{}},
		"large": {Key: samplestore.Key{Name: "n"}, Meta: &samplestore.Meta{}, Point: sample(0, manyUsages(1000)...)},
	}
	maps.Copy(objects, shapes())
	for _, k := range []*kind{nodes, pods} {
		for name, o := range objects {
			t.Run(k.name+" "+name, func(t *testing.T) {
				checkEncodings(t, &list{ListInterface: &metav1.ListMeta{}, Items: []object{{kind: k, point: o}}, kind: k})
			})
		}
	}
}

// FuzzObjectBytes looks for values at which our bytes are not the stock ones.
func FuzzObjectBytes(f *testing.F) {
	f.Add("default", "web-0", "app", "web", "c", uint64(1234567), uint64(1<<30), uint64(0), false, int64(15e9), int64(1788091200))
	f.Add("", "node-a", "", "", "", uint64(math.MaxUint64), uint64(1000), uint64(1024), true, int64(-1), int64(-62135596800))
	f.Fuzz(func(t *testing.T, namespace, name, label, value, container string, cpu, memory, swap uint64, hasSwap bool, window, seconds int64) {
		at := time.Unix(seconds, 0)
		o := &samplestore.Object{
			Key:  samplestore.Key{Namespace: namespace, Name: name},
			Meta: &samplestore.Meta{Labels: map[string]string{label: value, "app": "web"}},
			Point: &samplestore.Point{Time: samplestore.TimeOf(at), Newest: samplestore.TimeOf(at), Window: time.Duration(window), Usages: []samplestore.Usage{
				{Name: container, CPU: cpu, Memory: memory, Swap: swap, HasSwap: hasSwap},
			}},
		}
		checkEncodings(t, &object{kind: pods, point: o})
	})
}

// TestEventFragments holds that a watch keeps no more than the bytes of a fragment.
func TestEventFragments(t *testing.T) {
	for name, o := range shapes() {
		for _, k := range []*kind{nodes, pods} {
			for encoding, fragment := range k.eventFragments {
				t.Run(fmt.Sprintf("%s %s %d", k.name, name, encoding), func(t *testing.T) {
					got, err := fragment(o)
					if err != nil {
						t.Fatal(err)
					}
					if cap(got) > len(got)+len(got)/2 {
						t.Errorf("keeps %d bytes for %d", cap(got), len(got))
					}
				})
			}
		}
	}
}

// TestGetObjectIsACopy holds that whoever changes an API object changes nothing else.
func TestGetObjectIsACopy(t *testing.T) {
	labels := map[string]string{"app": "web"}
	o := &object{kind: pods, point: &samplestore.Object{Key: samplestore.Key{Name: "web-0"}, Meta: &samplestore.Meta{Labels: labels}, Point: sample(0)}}
	changed, err := metav1ObjectOf(o.GetObject())
	if err != nil {
		t.Fatal(err)
	}
	changed.GetLabels()["app"] = "changed"
	o.GetObjectMeta().GetLabels()["app"] = "changed"
	if diff := cmp.Diff(map[string]string{"app": "web"}, labels); diff != "" {
		t.Errorf("labels in the store (-want +got):\n%s", diff)
	}
}

func metav1ObjectOf(o runtime.Object) (metav1.Object, error) {
	accessor, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", o)
	}
	return accessor.GetObjectMeta(), nil
}

// TestWriteErrors holds that a client that went away is noticed, wherever in the
// answer that is.
func TestWriteErrors(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	l := &list{ListInterface: &metav1.ListMeta{}, kind: pods}
	for range 500 {
		l.Items = append(l.Items, object{kind: pods, point: randomObject(random, pods)})
	}
	gone := errors.New("client went away")
	table := &list{ListInterface: l, Items: l.Items, kind: pods, table: &tableFormat{version: metav1.SchemeGroupVersion}}
	for name, w := range map[string]wrapper{"list": l, "Table": table, "object": &l.Items[0]} {
		for encoderName := range byFragments {
			if name == "Table" && strings.Contains(encoderName, "protobuf") {
				continue
			}
			t.Run(name+" as "+encoderName, func(t *testing.T) {
				encoder := stockEncoders()[encoderName]
				all := &failingWriter{room: math.MaxInt, err: gone}
				if err := encoder.Encode(w, all); err != nil {
					t.Fatal(err)
				}
				for room := range all.writes {
					if err := encoder.Encode(w, &failingWriter{room: room, err: gone}); !errors.Is(err, gone) {
						t.Errorf("after %d of %d writes: got error %v, want %v", room, all.writes, err, gone)
					}
				}
			})
		}
	}
}

// failingWriter has room for a number of writes.
type failingWriter struct {
	room, writes int
	err          error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.writes == w.room {
		return 0, w.err
	}
	w.writes++
	return len(p), nil
}

// TestFeatureGate holds that fragments serve a server with CBORServingAndStorage,
// too: it asks for encoders in another way.
func TestFeatureGate(t *testing.T) {
	for _, info := range codecs.SupportedMediaTypes() {
		for _, version := range GroupVersions() {
			plain := codecs.EncoderForVersion(info.Serializer, version).Identifier()
			gated := codecs.EncoderForVersion(runtime.UseNondeterministicEncoding(info.Serializer), version).Identifier()
			_, want := encoders[plain]
			if _, got := encoders[gated]; got != want {
				t.Errorf("%s of %s is written from fragments: %v with the gate, %v without", info.MediaType, version, got, want)
			}
		}
	}
}

// TestUnknownEncoder holds that an encoder that nobody knows gets an API object.
func TestUnknownEncoder(t *testing.T) {
	o := &object{kind: pods, point: &samplestore.Object{Key: samplestore.Key{Name: "web-0"}, Meta: &samplestore.Meta{}, Point: sample(0)}}
	tests := map[string]runtime.Identifier{
		"empty":         "",
		"foreign":       "somebody's",
		"other version": codecs.EncoderForVersion(codecs.SupportedMediaTypes()[0].Serializer, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v2"}).Identifier(),
	}
	for name, id := range tests {
		t.Run(name, func(t *testing.T) {
			var got runtime.Object
			err := o.CacheEncode(id, func(obj runtime.Object, _ io.Writer) error {
				got = obj
				return nil
			}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(o.GetObject(), got); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}
