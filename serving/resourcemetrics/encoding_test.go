// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
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
	"v1 application/vnd.kubernetes.protobuf":      true,
	"v1beta1 application/json":                    true,
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

// shapes are objects of all shapes, by what is special about them.
func shapes() map[string]*point.Object {
	usage := point.Usage{Name: "app", CPU: 123456789, Memory: 64 << 20}
	of := func(labels map[string]string, p *point.Point) *point.Object {
		return &point.Object{Key: point.Key{Namespace: "default", Name: "web-0"}, Meta: &point.Meta{Labels: labels}, Point: p}
	}
	all := map[string]*point.Object{
		"plain":                  of(map[string]string{"app": "web"}, sample(0, usage)),
		"no labels":              of(nil, sample(0, usage)),
		"empty labels":           of(map[string]string{}, sample(0, usage)),
		"empty label value":      of(map[string]string{"node-role.kubernetes.io/control-plane": ""}, sample(0, usage)),
		"label order":            of(map[string]string{"b": "2", "a/b": "1", "B": "3", "a": "0", "a.b": "4", "": "5"}, sample(0, usage)),
		"unicode labels":         of(map[string]string{"größe": "größer", "日本": "語", "emoji": "🚀", "sep": "\u2028\u2029"}, sample(0, usage)),
		"escapes":                of(map[string]string{"quote\"": "back\\slash", "html": "<a href='x'>&</a>", "control": "\x00\x01\n\r\t\x1f\x7f"}, sample(0, usage)),
		"invalid UTF-8":          of(map[string]string{"bad": "a\xffb", "worse\xc3": "\xed\xa0\x80"}, sample(0, usage)),
		"many labels":            of(manyLabels(40), sample(0, usage)),
		"long label":             of(map[string]string{"long": strings.Repeat("x", 9000)}, sample(0, usage)),
		"swap":                   of(nil, sample(0, point.Usage{Name: "a", Swap: 4096, HasSwap: true}, point.Usage{Name: "b", HasSwap: true})),
		"swap not reported":      of(nil, sample(0, point.Usage{Name: "a", Swap: 4096})),
		"no containers":          of(nil, sample(0)),
		"many containers":        of(nil, sample(0, manyUsages(100)...)),
		"container without name": of(nil, sample(0, point.Usage{CPU: 1, Memory: 1})),
		"zero time":              of(nil, &point.Point{Usages: []point.Usage{usage}}),
		"before 1970":            of(nil, sample(-100*365*24*time.Hour, usage)),
		"other zone":             of(nil, inZone(sample(0, usage))),
		"no window":              of(nil, inWindow(0, usage)),
		"window in µs":           of(nil, inWindow(1500*time.Nanosecond, usage)),
		"negative window":        of(nil, inWindow(-time.Second, usage)),
		"long window":            of(nil, inWindow(math.MaxInt64, usage)),
		"without namespace":      {Key: point.Key{Name: "node-a"}, Meta: &point.Meta{}, Point: sample(0, usage)},
	}
	for _, v := range quantities {
		all[fmt.Sprintf("%d of all", v)] = of(nil, sample(0, point.Usage{CPU: v, Memory: v, Swap: v, HasSwap: true}))
	}
	return all
}

// quantities are those at which a canonical form changes.
var quantities = []uint64{
	0, 1, 9, 10, 100, 500, 999, 1000, 1001, 1023, 1024, 1025, 1536, 10_000, 100_000, 1_000_000, 1 << 20, 1<<20 + 1, 1_000_000_000,
	1 << 30, 1_500_000_000, 12_345 << 10, 1e12, 1 << 40, 1e15, 1 << 50, 1e18, 1 << 60, 7e18, 7 << 60, math.MaxInt64,
	math.MaxInt64 + 1, 1e19, 15 << 60, math.MaxUint64 - 615, math.MaxUint64,
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("example.com/label-%d", i)] = fmt.Sprintf("value-%d", i)
	}
	return labels
}

func manyUsages(n int) []point.Usage {
	usages := make([]point.Usage, n)
	for i := range usages {
		usages[i] = point.Usage{Name: fmt.Sprintf("c-%03d", i), CPU: uint64(i) * 1001, Memory: uint64(i) << 12}
	}
	return usages
}

func inZone(p *point.Point) *point.Point {
	p.Time = p.Time.In(time.FixedZone("east", 3*3600))
	return p
}

func inWindow(window time.Duration, usages ...point.Usage) *point.Point {
	p := sample(0, usages...)
	p.Window = window
	return p
}

func TestObjectBytes(t *testing.T) {
	for name, o := range shapes() {
		for _, k := range []*kind{nodes, pods} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				// A fresh point.Object for each kind: its fragments are one kind's.
				fresh := &point.Object{Key: o.Key, Meta: o.Meta, Point: o.Point}
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
		"more than a chunk": {meta: metav1.ListMeta{ResourceVersion: "7"}, items: 2000},
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

// randomObject is like those of a real cluster.
func randomObject(r *rand.Rand, k *kind) *point.Object {
	word := func() string { return fmt.Sprintf("w%x", r.Uint32()) }
	o := &point.Object{Key: point.Key{Name: word()}, Meta: &point.Meta{}}
	if k.namespaced {
		o.Namespace = word()
	}
	for range r.IntN(6) {
		if o.Meta.Labels == nil {
			o.Meta.Labels = map[string]string{}
		}
		o.Meta.Labels["app.kubernetes.io/"+word()] = word()
	}
	usages := make([]point.Usage, 1+r.IntN(4))
	for i := range usages {
		usages[i] = point.Usage{
			Name: word(), CPU: r.Uint64() >> r.IntN(64), Memory: r.Uint64() >> r.IntN(64) &^ (1<<r.IntN(30) - 1),
			Swap: r.Uint64() >> r.IntN(64), HasSwap: r.IntN(3) == 0,
		}
	}
	o.Point = sample(-time.Duration(r.Int64N(int64(time.Minute))), usages...)
	o.Point.Window = time.Duration(r.Int64N(int64(time.Minute)))
	return o
}

// FuzzObjectBytes looks for values at which our bytes are not the stock ones.
func FuzzObjectBytes(f *testing.F) {
	f.Add("default", "web-0", "app", "web", "c", uint64(1234567), uint64(1<<30), uint64(0), false, int64(15e9), int64(1788091200))
	f.Add("", "node-a", "", "", "", uint64(math.MaxUint64), uint64(1000), uint64(1024), true, int64(-1), int64(-62135596800))
	f.Fuzz(func(t *testing.T, namespace, name, label, value, container string, cpu, memory, swap uint64, hasSwap bool, window, seconds int64) {
		at := time.Unix(seconds, 0)
		o := &point.Object{
			Key:  point.Key{Namespace: namespace, Name: name},
			Meta: &point.Meta{Labels: map[string]string{label: value, "app": "web"}},
			Point: &point.Point{Time: at, Newest: at, Window: time.Duration(window), Usages: []point.Usage{
				{Name: container, CPU: cpu, Memory: memory, Swap: swap, HasSwap: hasSwap},
			}},
		}
		checkEncodings(t, &object{kind: pods, point: o})
	})
}

// TestFragmentsAreKept holds that the second encoding of a data point, in
// whatever version, writes what the first one made.
func TestFragmentsAreKept(t *testing.T) {
	o := &point.Object{Key: point.Key{Namespace: "default", Name: "web-0"}, Meta: &point.Meta{}, Point: sample(0)}
	for _, encoding := range []point.Encoding{point.EncodingJSON, point.EncodingProtobuf} {
		first, err := (&object{kind: pods, point: o}).fragment(encoding)
		if err != nil {
			t.Fatal(err)
		}
		second, err := (&object{kind: pods, point: o}).fragment(encoding)
		if err != nil {
			t.Fatal(err)
		}
		if &first[0] != &second[0] {
			t.Errorf("encoding %d was made twice", encoding)
		}
		if cap(first) > len(first)+len(first)/2 {
			t.Errorf("encoding %d keeps %d bytes for %d", encoding, cap(first), len(first))
		}
	}
}

// TestGetObjectIsACopy holds that whoever changes an API object changes nothing else.
func TestGetObjectIsACopy(t *testing.T) {
	labels := map[string]string{"app": "web"}
	o := &object{kind: pods, point: &point.Object{Key: point.Key{Name: "web-0"}, Meta: &point.Meta{Labels: labels}, Point: sample(0)}}
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
	tests := map[string]wrapper{"list": l, "object": &l.Items[0]}
	for name, w := range tests {
		for encoderName := range byFragments {
			encoder := stockEncoders()[encoderName]
			for room := range 3 {
				t.Run(fmt.Sprintf("%s as %s after %d writes", name, encoderName, room), func(t *testing.T) {
					gone := errors.New("client went away")
					out := &failingWriter{writes: room, err: gone}
					if err := encoder.Encode(w, out); !errors.Is(err, gone) && !out.complete {
						t.Errorf("got error %v, want %v", err, gone)
					}
				})
			}
		}
	}
}

// failingWriter takes some writes and then no more.
type failingWriter struct {
	writes   int
	err      error
	complete bool
}

func (w *failingWriter) Write(p []byte) (int, error) {
	w.complete = false
	if w.writes == 0 {
		return 0, w.err
	}
	w.writes--
	w.complete = true
	return len(p), nil
}

// TestUnknownEncoder holds that an encoder that nobody knows gets an API object.
func TestUnknownEncoder(t *testing.T) {
	o := &object{kind: pods, point: &point.Object{Key: point.Key{Name: "web-0"}, Meta: &point.Meta{}, Point: sample(0)}}
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
