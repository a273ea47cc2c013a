// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// listRequests are the ways to list, by name.
var listRequests = []struct{ name, path, accept, encoding string }{
	{name: "all", path: "pods"},
	{name: "all-protobuf", path: "pods", accept: "application/vnd.kubernetes.protobuf"},
	{name: "all-gzip", path: "pods", encoding: "gzip"},
	{name: "all-pretty", path: "pods?pretty=1"},
	{name: "Table", path: "pods", accept: kubectlTable},
	{name: "Table-objects", path: "pods?includeObject=Object", accept: kubectlTable},
	{name: "Table-none", path: "pods?includeObject=None", accept: kubectlTable},
	{name: "namespace", path: "namespaces/namespace-007/pods"},
	{name: "label", path: "namespaces/namespace-007/pods?labelSelector=app.kubernetes.io/instance%3Dweb-1"},
	{name: "nodes", path: "nodes"},
	{name: "name", path: "pods?fieldSelector=metadata.name%3Dweb-1-7d4b9c6f5d-00007"},
	{name: "field-namespace", path: "pods?fieldSelector=metadata.namespace%3Dnamespace-007"},
	{name: "page", path: "pods?limit=500"},
	{name: "one", path: "namespaces/namespace-007/pods/web-1-7d4b9c6f5d-00007"},
}

// BenchmarkListTLS is a client's request on a kept connection, until the last byte: wall time, and the CPU
// time and peak heap of client and server together.
func BenchmarkListTLS(b *testing.B) {
	store := cluster(100, 300)
	for i := range 1000 {
		put(store.Nodes, "", fmt.Sprintf("node-%04d", i), map[string]string{"kubernetes.io/os": "linux"}, sample(0, samplestore.Usage{CPU: 1_234_567_890, Memory: 3 << 30}))
	}
	for _, protocol := range []string{"http1", "http2"} {
		server := httptest.NewUnstartedServer(serve(b, store, enableAll, withUser).Config.Handler)
		server.EnableHTTP2 = protocol == "http2"
		server.StartTLS()
		b.Cleanup(server.Close)
		for _, r := range listRequests {
			b.Run(r.name+"/"+protocol, func(b *testing.B) {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL+"/apis/metrics.k8s.io/v1/"+r.path, nil)
				if err != nil {
					b.Fatal(err)
				}
				request.Header.Set("Accept", r.accept)
				request.Header.Set("Accept-Encoding", "identity")
				if r.encoding != "" {
					request.Header.Set("Accept-Encoding", r.encoding)
				}
				list := func() int64 {
					response, err := server.Client().Do(request)
					if err != nil {
						b.Fatal(err)
					}
					defer func() { _ = response.Body.Close() }()
					n, err := io.Copy(io.Discard, response.Body)
					if err != nil || response.StatusCode != http.StatusOK {
						b.Fatalf("code %d, error %v", response.StatusCode, err)
					}
					return n
				}
				list() // connects
				runtime.GC()
				peak := watchHeap()
				b.ReportAllocs()
				b.SetBytes(list())
				before := cpuTime(b)
				for b.Loop() {
					list()
				}
				b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(peak()>>10), "peak-KiB")
			})
		}
	}
}

// cpuTime returns the CPU time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// watchHeap returns a function that returns by how many bytes the heap, garbage included, exceeded its
// size now.
func watchHeap() func() int64 {
	heap := func() int64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	before := heap()
	var peak atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.NewTicker(time.Millisecond); ; {
			peak.Store(max(peak.Load(), heap()-before))
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-stopped
		return peak.Load()
	}
}

// BenchmarkListRetained measures what lists of every kind leave in memory until the next data points.
func BenchmarkListRetained(b *testing.B) {
	for _, pods := range []int{30_000, 150_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			store := cluster(pods/300, 300)
			server := serve(b, store, enableAll)
			get(b, server, "/apis/metrics.k8s.io/v1/nodes", "")
			before := heap.InUse()
			for b.Loop() {
				for _, r := range listRequests {
					if r.encoding == "" {
						get(b, server, "/apis/metrics.k8s.io/v1/"+r.path, r.accept)
					}
				}
			}
			b.ReportMetric((heap.InUse()-before)/1024, "retained-KiB")
		})
	}
}
