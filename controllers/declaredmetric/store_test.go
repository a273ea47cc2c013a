// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
	"github.com/metricsbackend/metrics-backend-operator/test/heap"
)

// manyMetrics is a kube-apiserver with the largest ExternalMetrics in one namespace, and serving pods.
type manyMetrics struct {
	metrics int
	// used is set if they are not beyond the limits, and fail with the longest messages.
	used bool
	// untold is set if they have no status yet. All others say that they are beyond the limits.
	untold bool
	// name is the beginning of all names.
	name string
	// pages is set if it cannot stream lists.
	pages bool
	// expires is set if the first list cannot be continued to its end.
	expires bool
	// longest is the most metrics of a list.
	longest int
}

func (s *manyMetrics) metric(i int) []byte {
	m := &v1alpha1.ExternalMetric{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kindExternal},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: fmt.Sprintf("m%s%06d", s.name, i), UID: manyUID, Generation: 1,
			CreationTimestamp: metav1.Date(2026, 1, 1, 0, 0, i, 0, time.UTC), ResourceVersion: strconv.Itoa(1000 + i),
			Annotations: map[string]string{"notes": strings.Repeat("x", 500)},
		},
	}
	m.Spec.Query = strings.Repeat("x", v1alpha1.MaxDeclaredSize)
	r := tooMany[kindExternal]
	if s.used {
		r = &reports{problem: &problem{stalled: true, reason: v1alpha1.ReasonFailing, message: strings.Repeat("y", maxMessage)}}
	}
	if !s.untold {
		m.Status = *statusOf(newMetric(m), r, m.CreationTimestamp.Time)
	}
	b, _ := json.Marshal(m)
	return b
}

// Declared implements PodReader.
func (s *manyMetrics) Declared(_ context.Context, _ servingclient.Pod, visit func(v1alpha1.DeclaredHealth)) error {
	for i := range s.metrics {
		visit(v1alpha1.DeclaredHealth{
			Kind: kindExternal, Namespace: "team-a", Name: fmt.Sprintf("m%s%06d", s.name, i), UID: manyUID, Generation: 1,
			Reason: v1alpha1.ReasonFailing, Message: strings.Repeat("z", maxMessage),
		})
	}
	return nil
}

// manyUID is the UID of all manyMetrics.
const manyUID = "0f0f0f0f-0000-0000-0000-000000000000"

// ServeHTTP implements http.Handler.
func (s *manyMetrics) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	switch streams := query.Get("sendInitialEvents") != ""; {
	case s.expires && query.Get("continue") == "1000":
		s.expires = false
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`)
	case streams && s.pages:
		http.Error(w, `{"kind":"Status","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
	case streams:
		for i := range s.metrics {
			fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, s.metric(i))
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"ExternalMetric","apiVersion":%q,"metadata":{"resourceVersion":"9","annotations":{%q:"true"}}}}`,
			v1alpha1.GroupVersion, metav1.InitialEventsAnnotationKey)
		fallthrough
	case query.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		first, _ := strconv.Atoi(query.Get("continue"))
		last := s.metrics
		// As kube-apiserver, which ignores the limit if it may answer from its cache.
		if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && query.Get("resourceVersion") == "" {
			last = min(first+limit, last)
		}
		s.longest = max(s.longest, last-first)
		next := ""
		if last < s.metrics {
			next = strconv.Itoa(last)
		}
		fmt.Fprintf(w, `{"kind":"ExternalMetricList","apiVersion":%q,"metadata":{"resourceVersion":"9","continue":%q},"items":[`, v1alpha1.GroupVersion, next)
		for i := first; i < last; i++ {
			_, _ = w.Write(s.metric(i))
			if i < last-1 {
				_, _ = w.Write([]byte(","))
			}
		}
		_, _ = w.Write([]byte("]}"))
	}
}

// heapOf returns the bytes of heap that an informer of the metrics takes for each, those that a poll allocates for each, and the
// informer.
func heapOf(tb testing.TB, s *manyMetrics) (kept, polled float64, _ cache.SharedIndexInformer) {
	tb.Helper()
	server := httptest.NewServer(s)
	kinds := apiruntime.NewScheme()
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		tb.Fatal(err)
	}
	metav1.AddToGroupVersion(kinds, v1alpha1.GroupVersion)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind(kindExternal), meta.RESTScopeNamespace)
	live, err := client.NewWithWatch(&rest.Config{Host: server.URL}, client.Options{Scheme: kinds, Mapper: mapper})
	if err != nil {
		tb.Fatal(err)
	}
	allocated := func() float64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return float64(stats.TotalAlloc)
	}
	stored := fake.NewClientBuilder().WithScheme(kinds).WithObjects(serving()).Build()
	w := &world{directory: servingclient.NewDirectory()}
	if s.used {
		w.pods("a", "b")
	}
	before := heap.InUse()
	c := New(Options{Live: live, Client: stored, Pods: s, Tokens: w, Directory: w.directory, Clock: clock.RealClock{}})
	external := c.informers[kindExternal]
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { external.RunWithContext(ctx) })
	tb.Cleanup(func() { cancel(); running.Wait(); server.Close() })
	cache.WaitForCacheSync(ctx.Done(), external.HasSynced)
	after, start := heap.InUse(), allocated()
	ended, end := context.WithCancel(ctx)
	end()
	_ = c.Poll(ended) // all but its requests
	return (after - before) / float64(s.metrics), (allocated() - start) / float64(s.metrics), external
}

// Of metrics beyond the limits little is kept, whatever they have, and however kube-apiserver lists them: 100,000 of them, and as
// many of both kinds as can be in use, fit into the operator's default memory limit.
func TestManyMetrics(t *testing.T) {
	type bytes struct{ kept, polled float64 }
	// What a poll allocates for a metric in use is freed before the next one: GOMEMLIMIT of the operator sees to that.
	beyond, used := bytes{600, 1_000}, bytes{kept: 3_300}
	cases := map[string]*manyMetrics{
		"streamed":                    {},
		"by page":                     {pages: true},
		"by page, and a page is gone": {pages: true, expires: true},
		"without a status":            {untold: true},
		"in use":                      {used: true},
	}
	for name, server := range cases {
		t.Run(name, func(t *testing.T) {
			most, wantTold := beyond, 4_000
			server.metrics = wantTold
			switch {
			case server.used:
				most, wantTold = used, 0
				server.metrics = v1alpha1.MaxMetricsPerNamespace
			case server.untold:
				wantTold = 0
			}
			kept, polled, external := heapOf(t, server)
			t.Logf("%.0f bytes each, and %.0f during a poll", kept, polled)
			if kept > most.kept || !server.used && polled > most.polled {
				t.Errorf("%.0f bytes of memory for each metric and %.0f during a poll, want %.0f at most", kept, polled, most)
			}
			if server.longest > listPage {
				t.Errorf("%d metrics are read at a time", server.longest)
			}
			told := 0
			all := listLimited(external)
			for _, m := range all {
				if m.told && m.status == &toldStatus {
					told++
				}
			}
			if len(all) != server.metrics || told != wantTold {
				t.Errorf("%d metrics, of which %d say that they are beyond the limits, want %d and %d", len(all), told, server.metrics, wantTold)
			}
		})
	}
	const limit, otherwise = 256 << 20, 25e6
	if all := 100_000*(beyond.kept+beyond.polled) + 2*v1alpha1.MaxMetrics*(used.kept+used.polled); all > limit-otherwise {
		t.Errorf("%.0f MB in all", all/1e6)
	}
}

// BenchmarkManyMetrics measures what docs/tasks/operations.md says of the operator's memory.
func BenchmarkManyMetrics(b *testing.B) {
	for name, server := range map[string]manyMetrics{
		"told":               {},
		"untold":             {untold: true},
		"told, long names":   {name: strings.Repeat("x", 240)},
		"untold, long names": {untold: true, name: strings.Repeat("x", 240)},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				server.metrics = 100_000
				kept, polled, _ := heapOf(b, &server)
				b.ReportMetric(kept, "heap-bytes/metric")
				b.ReportMetric(polled, "poll-bytes/metric")
			}
		})
	}
}
