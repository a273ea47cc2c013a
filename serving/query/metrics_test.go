// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
)

func TestMetrics(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	MetricSet.Register(registry.MustRegister)
	for _, m := range []interface{ Reset() }{evaluationsTotal, requestsTotal, evaluationsInFlight, evaluationsQueued, circuitBreakerOpen} {
		m.Reset()
	}
	watchedQueries.Set(0)
	withFixture(t, func(t *testing.T, f *fixture, s *fakeSource) {
		f.limits.concurrency = 1
		s.latency = 500 * time.Millisecond
		q := testQuery("a")
		waitForSlot(q)
		var all sync.WaitGroup
		for range 3 { // a miss and two that share it
			all.Go(func() { f.mustQuery(q) })
		}
		all.Go(func() {
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() { _, _ = f.Query(ctx, testQuery("b")) }) // queued
			time.Sleep(700 * time.Millisecond)
			cancel() // under way: it goes on
		})
		all.Wait()
		time.Sleep(time.Second)
		f.mustQuery(q) // a hit
		defer f.subscribe(q, func(*Result, error) {})()
		s.setEvaluate(down)
		_, _ = f.query(testQuery("c")) // misses
		_, _ = f.query(testQuery("d"))
		_, _ = f.query(testQuery("e")) // rejected, as the circuit breaker is open by now
		want := `
# HELP metrics_backend_query_cached_queries [ALPHA] Number of different queries that are cached.
# TYPE metrics_backend_query_cached_queries gauge
metrics_backend_query_cached_queries 5
# HELP metrics_backend_query_circuit_breaker_open [ALPHA] 1 while the queries of a source fail fast, except for one probe at a time, because the source keeps failing; otherwise 0.
# TYPE metrics_backend_query_circuit_breaker_open gauge
metrics_backend_query_circuit_breaker_open{source="p"} 1
# HELP metrics_backend_query_evaluations_in_flight [ALPHA] Number of running evaluations, by source.
# TYPE metrics_backend_query_evaluations_in_flight gauge
metrics_backend_query_evaluations_in_flight{source="p"} 0
# HELP metrics_backend_query_evaluations_queued [ALPHA] Number of evaluations that wait because of the limit of running evaluations, by source.
# TYPE metrics_backend_query_evaluations_queued gauge
metrics_backend_query_evaluations_queued{source="p"} 0
# HELP metrics_backend_query_evaluations_total [ALPHA] Number of evaluations that ended, by source and result: Success, the reason of the failure as in the status of the MetricsBackend, or Canceled, of a source that was replaced meanwhile, or for which no client waits.
# TYPE metrics_backend_query_evaluations_total counter
metrics_backend_query_evaluations_total{result="ConnectionFailed",source="p"} 2
metrics_backend_query_evaluations_total{result="Success",source="p"} 2
# HELP metrics_backend_query_requests_total [ALPHA] Number of requests for the result of a query, by result: hit, the result or failure of the interval was cached; shared, the evaluation was running; miss, it was started; rejected, there was none, since the source is gone, its circuit breaker is open, or a limit is reached.
# TYPE metrics_backend_query_requests_total counter
metrics_backend_query_requests_total{result="hit"} 1
metrics_backend_query_requests_total{result="miss"} 4
metrics_backend_query_requests_total{result="rejected"} 1
metrics_backend_query_requests_total{result="shared"} 2
# HELP metrics_backend_query_watched_queries [ALPHA] Number of different queries that are evaluated once per interval for watches.
# TYPE metrics_backend_query_watched_queries gauge
metrics_backend_query_watched_queries 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "metrics_backend_query_cached_queries", "metrics_backend_query_circuit_breaker_open", "metrics_backend_query_evaluations_in_flight", "metrics_backend_query_evaluations_queued", "metrics_backend_query_evaluations_total", "metrics_backend_query_requests_total", "metrics_backend_query_watched_queries"); err != nil {
			t.Error(err)
		}
	})
}

// The tenants with most cached bytes have series, at most ten, and lose them when they are
// no longer among them.
func TestTenantMetrics(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	MetricSet.Register(registry.MustRegister)
	tenantQueries.Reset()
	tenantBytes.Reset()
	tenants := map[string]*tenantUsage{}
	use := func(tenant string, queries, bytes int) {
		tenants[tenant] = &tenantUsage{tenant: tenant, usage: usage{queries: queries, bytes: bytes}}
	}
	for i := range 9 {
		use(string(rune('a'+i)), 1, 100+i)
	}
	use("", 2, 1000)
	use("few", 5, 1)
	reported := reportTenants(tenants, nil)
	if n := len(reported); n != 10 || reported[0] != "(cluster)" || slices.Contains(reported, "few") {
		t.Errorf("reported are %q", reported)
	}
	use("few", 5, 10000)
	for i := range 9 {
		delete(tenants, string(rune('a'+i)))
	}
	reportTenants(tenants, reported)
	want := `
# HELP metrics_backend_query_tenant_cached_queries [ALPHA] Number of different queries that are cached, of the tenants with most cached bytes, at most ten: a namespace, or (cluster) for queries that no namespace asked for.
# TYPE metrics_backend_query_tenant_cached_queries gauge
metrics_backend_query_tenant_cached_queries{tenant="(cluster)"} 2
metrics_backend_query_tenant_cached_queries{tenant="few"} 5
# HELP metrics_backend_query_tenant_cached_bytes [ALPHA] Bytes of cached queries and their results, of the tenants with most of them, at most ten.
# TYPE metrics_backend_query_tenant_cached_bytes gauge
metrics_backend_query_tenant_cached_bytes{tenant="(cluster)"} 1000
metrics_backend_query_tenant_cached_bytes{tenant="few"} 10000
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "metrics_backend_query_tenant_cached_queries", "metrics_backend_query_tenant_cached_bytes"); err != nil {
		t.Error(err)
	}
}
