// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	epmetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

func TestNewestSample(t *testing.T) {
	registerMetrics()
	const name = "metrics_backend_store_newest_node_sample_timestamp_seconds"
	expect := func(want float64) {
		t.Helper()
		text := "# HELP " + name + " [ALPHA] Time in seconds since 1970 of the newest node sample that was read from any kubelet; 0 when there is none.\n" +
			"# TYPE " + name + " gauge\n" + name + " " + strconv.FormatFloat(want, 'g', -1, 64) + "\n"
		if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(text), name); err != nil {
			t.Error(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var newest atomic.Pointer[metav1.Time]
		newest.Store(&metav1.Time{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go updateNewestSample(ctx, clock.RealClock{}, func() v1alpha1.KubeletReport { return v1alpha1.KubeletReport{NewestSample: *newest.Load()} })
		synctest.Wait()
		expect(0)
		for _, ms := range []int64{1_750_000_000_250, 1_750_000_015_500} {
			at := metav1.NewTime(time.UnixMilli(ms))
			newest.Store(&at)
			time.Sleep(newestSamplePeriod)
			synctest.Wait()
			expect(float64(ms) / 1000)
		}
	})
}

// TestRequestLabels: a request that is rejected before authorization is counted, but not
// under names that the client chose.
func TestRequestLabels(t *testing.T) {
	registerMetrics()
	epmetrics.Register()
	epmetrics.Reset()
	t.Cleanup(epmetrics.Reset)
	resolver := requestInfoResolver(genericapiserver.NewConfig(codecs))

	// One request takes the only place there is, so each other one is turned away.
	busy, done := make(chan struct{}), make(chan struct{})
	taken := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(busy)
		<-done
	})
	handler := genericfilters.WithRequestInfo(filters.WithMaxInFlightLimit(taken, 1, 1, nil), resolver)
	get := func(path string) int {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return answer.Code
	}
	var running sync.WaitGroup
	running.Go(func() { get("/apis/metrics.k8s.io/v1/nodes") })
	t.Cleanup(func() {
		close(done)
		running.Wait()
	})
	<-busy

	tests := map[string]struct{ path, want string }{
		"nodes":              {"/apis/metrics.k8s.io/v1/nodes/a", "metrics.k8s.io v1 nodes "},
		"pods":               {"/apis/metrics.k8s.io/v1beta1/namespaces/a/pods", "metrics.k8s.io v1beta1 pods "},
		"a custom metric":    {"/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/written.by/client/written", "custom.metrics.k8s.io v1beta2 unexpected unexpected"},
		"an external metric": {"/apis/external.metrics.k8s.io/v1beta1/namespaces/a/written", "external.metrics.k8s.io v1beta1 unexpected "},
		"another group":      {"/apis/written/written/written/a/written", "unexpected unexpected unexpected unexpected"},
		"no resource":        {"/written/by/client", "   unexpected"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			epmetrics.Reset()
			if code := get(tc.path); code != http.StatusTooManyRequests {
				t.Fatalf("status %d, want it turned away", code)
			}
			abort(t.Context(), t, tc.path)
			got := labelsOfRequests(t)
			want := map[string]string{}
			for _, metric := range []string{"apiserver_request_total", "apiserver_request_terminations_total", "apiserver_request_aborts_total"} {
				want[metric] = tc.want
			}
			if name == "no resource" { // only one of them has the path as a label
				want["apiserver_request_total"], want["apiserver_request_aborts_total"] = "   ", "   "
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("group, version, resource and subresource (-want +got):\n%s", diff)
			}
		})
	}
}

// abort sends a request whose handler aborts, as at a timeout.
func abort(ctx context.Context, t *testing.T, path string) {
	t.Helper()
	handler := filters.WithPanicRecovery(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		requestInfoResolver(genericapiserver.NewConfig(codecs)))
	defer func() {
		if recover() == nil {
			t.Error("the request was not broken off")
		}
	}()
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
}

// labelsOfRequests returns group, version, resource and subresource of the one series of
// each counter of requests that reached no handler.
func labelsOfRequests(t *testing.T) map[string]string {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, family := range families {
		name := family.GetName()
		if !strings.HasPrefix(name, "apiserver_request_") || !strings.HasSuffix(name, "_total") {
			continue
		}
		for _, series := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range series.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if _, ok := labels["resource"]; ok {
				found[name] += strings.Join([]string{labels["group"], labels["version"], labels["resource"], labels["subresource"]}, " ")
			}
		}
	}
	return found
}
