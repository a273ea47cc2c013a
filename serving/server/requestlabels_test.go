// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	epmetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/component-base/metrics/legacyregistry"
)

// TestRequestLabels: a request that is turned away before anyone has authorized it is
// counted, but not under names that only its client knows of.
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

// abort has a handler break a request off, as at a timeout.
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
// each counter of requests that did not get to a handler.
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
