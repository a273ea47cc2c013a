// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// BenchmarkHeldMemory is what a question takes that is held, beside the text of its
// query: 5,000 of 100 namespaces, each with the answer for one object, and followed or not.
func BenchmarkHeldMemory(b *testing.B) {
	const n, length = 5000, 300
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for name, follow := range map[string]bool{"polled": false, "followed": true} {
		b.Run(name, func(b *testing.B) {
			s := &source{reply: func(_ context.Context, expression string, at time.Time) (*Result, error) {
				return &Result{Time: at, Samples: []Sample{{Labels: map[string]string{"pod": strings.Clone(expression[:20])}, Time: at, Value: 1}}}, nil
			}}
			for b.Loop() {
				before := heap()
				d := NewEvaluator(clock.RealClock{}, func() float64 { return 0 }, func(string) (Source, bool) { return s, true }, Limits{})
				stops := make([]func(), 0, n)
				for i := range n {
					q := Query{Source: "p", Interval: time.Hour, Tenant: fmt.Sprintf("namespace-%d", i%100),
						Expression: fmt.Sprintf("%020d%s", i, strings.Repeat("x", length-20))}
					if follow {
						stops = append(stops, d.Subscribe(q, time.Time{}, func(*Result, error) {}))
					}
					if _, err := d.Query(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
				s.asked, s.at = nil, nil
				b.ReportMetric((heap()-before)/n-length, "B/question")
				for _, stop := range stops {
					stop()
				}
				runtime.KeepAlive(d)
			}
		})
	}
}
