// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// shapes are objects of all shapes, by what is special about them.
func shapes() map[string]*samplestore.Object {
	usage := samplestore.Usage{Name: "app", CPU: 123456789, Memory: 64 << 20}
	of := func(labels map[string]string, p *samplestore.Point) *samplestore.Object {
		return &samplestore.Object{Key: samplestore.Key{Namespace: "default", Name: "web-0"}, Meta: &samplestore.Meta{Labels: labels}, Point: p}
	}
	all := map[string]*samplestore.Object{
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
		"swap":                   of(nil, sample(0, samplestore.Usage{Name: "a", Swap: 4096, HasSwap: true}, samplestore.Usage{Name: "b", HasSwap: true})),
		"swap not reported":      of(nil, sample(0, samplestore.Usage{Name: "a", Swap: 4096})),
		"no containers":          of(nil, sample(0)),
		"many containers":        of(nil, sample(0, manyUsages(100)...)),
		"container without name": of(nil, sample(0, samplestore.Usage{CPU: 1, Memory: 1})),
		"zero time":              of(nil, &samplestore.Point{Usages: []samplestore.Usage{usage}}),
		"before 1970":            of(nil, sample(-100*365*24*time.Hour, usage)),
		"no window":              of(nil, inWindow(0, usage)),
		"window in µs":           of(nil, inWindow(1500*time.Nanosecond, usage)),
		"negative window":        of(nil, inWindow(-time.Second, usage)),
		"long window":            of(nil, inWindow(math.MaxInt64, usage)),
		"without namespace":      {Key: samplestore.Key{Name: "node-a"}, Meta: &samplestore.Meta{}, Point: sample(0, usage)},
	}
	for _, v := range quantities {
		all[fmt.Sprintf("%d of all", v)] = of(nil, sample(0, samplestore.Usage{CPU: v, Memory: v, Swap: v, HasSwap: true}))
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

func manyUsages(n int) []samplestore.Usage {
	usages := make([]samplestore.Usage, n)
	for i := range usages {
		usages[i] = samplestore.Usage{Name: fmt.Sprintf("c-%03d", i), CPU: uint64(i) * 1001, Memory: uint64(i) << 12}
	}
	return usages
}

func inWindow(window time.Duration, usages ...samplestore.Usage) *samplestore.Point {
	p := sample(0, usages...)
	p.Window = window
	return p
}

// randomObject is like those of a real cluster.
func randomObject(r *rand.Rand, k *kind) *samplestore.Object {
	word := func() string { return fmt.Sprintf("w%x", r.Uint32()) }
	o := &samplestore.Object{Key: samplestore.Key{Name: word()}, Meta: &samplestore.Meta{}}
	if k.namespaced {
		o.Namespace = word()
	}
	for range r.IntN(6) {
		if o.Meta.Labels == nil {
			o.Meta.Labels = map[string]string{}
		}
		o.Meta.Labels["app.kubernetes.io/"+word()] = word()
	}
	usages := make([]samplestore.Usage, 1+r.IntN(4))
	for i := range usages {
		usages[i] = samplestore.Usage{
			Name: word(), CPU: r.Uint64() >> r.IntN(64), Memory: r.Uint64() >> r.IntN(64) &^ (1<<r.IntN(30) - 1),
			Swap: r.Uint64() >> r.IntN(64), HasSwap: r.IntN(3) == 0,
		}
	}
	o.Point = sample(-time.Duration(r.Int64N(int64(time.Minute))), usages...)
	o.Point.Window = time.Duration(r.Int64N(int64(time.Minute)))
	return o
}
