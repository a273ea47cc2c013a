// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package consumers

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// hotPath returns the request of a client that was recorded before.
func hotPath(tb testing.TB, clients int) (*Recorder, *http.Request, *request.RequestInfo) {
	tb.Helper()
	r := NewRecorder(clock.RealClock{}, versions)
	for i := range clients {
		r.Record(v1beta1, fmt.Sprintf("client-%d/v1", i), "u")
	}
	req := newRequest(tb, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb", hpaAgent, hpaUser)
	info, _ := request.RequestInfoFrom(req.Context())
	r.recordRequest(req, info)
	return r, req, info
}

func TestNoAllocations(t *testing.T) {
	for name, clients := range map[string]int{"known": 0, "beyond the bound": v1alpha1.MaxConsumers} {
		t.Run(name, func(t *testing.T) {
			r, req, info := hotPath(t, clients)
			if n := testing.AllocsPerRun(1000, func() { r.recordRequest(req, info) }); n != 0 {
				t.Errorf("%v allocations a request", n)
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	for name, clients := range map[string]int{"known": 0, "beyond the bound": v1alpha1.MaxConsumers} {
		b.Run(name, func(b *testing.B) {
			r, req, info := hotPath(b, clients)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r.recordRequest(req, info)
				}
			})
		})
	}
}

// BenchmarkRecordNewNames records a client with ever new names.
func BenchmarkRecordNewNames(b *testing.B) {
	r, req, info := hotPath(b, v1alpha1.MaxConsumers)
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprintf("bot-%d/1", i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req.Header["User-Agent"][0] = names[i%len(names)]
		r.recordRequest(req, info)
	}
}
