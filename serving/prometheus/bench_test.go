// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// vectorBody is the answer for n pods as Prometheus writes it.
func vectorBody(n int) string {
	var b strings.Builder
	b.WriteString(`{"status":"success","data":{"resultType":"vector","result":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metric":{"namespace":"namespace-%d","pod":"workload-7d9f8b6c5d-%05d"},"value":[1700000000.123,"%d.25"]}`, i%50, i, i)
	}
	b.WriteString(`]}}`)
	return b.String()
}

func BenchmarkEvaluate(b *testing.B) {
	for _, n := range []int{1, 10000} {
		b.Run(fmt.Sprintf("samples=%d", n), func(b *testing.B) {
			body := []byte(vectorBody(n))
			w := newWorld(b, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write(body)
			}, nil)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if a, err := w.source.Evaluate(b.Context(), query.Query{Expression: "x"}, instant); err != nil || len(a.Samples) != n {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAnswerMemory is what a sample takes of an answer of 20,000 that is held.
func BenchmarkAnswerMemory(b *testing.B) {
	const n = 20000
	for _, more := range []int{0, 5} {
		b.Run(fmt.Sprintf("labels=%d", 2+more), func(b *testing.B) {
			var labels strings.Builder
			for i := range more {
				fmt.Fprintf(&labels, `"label_%d":"one-of-the-values-%d",`, i, i)
			}
			body := []byte(strings.ReplaceAll(vectorBody(n), `{"namespace"`, "{"+labels.String()+`"namespace"`))
			w := newWorld(b, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write(body)
			}, nil)
			for b.Loop() {
				before := heap.InUse()
				a, err := w.source.Evaluate(b.Context(), query.Query{Expression: "x"}, instant)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric((heap.InUse()-before)/n, "B/sample")
				b.ReportMetric(float64(a.Bytes)/n, "counted-B/sample")
				runtime.KeepAlive(a)
			}
		})
	}
}
