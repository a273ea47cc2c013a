// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
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
	RegisterMetrics(registry.MustRegister)
	for _, m := range []interface{ Reset() }{evaluationsTotal, askedTotal, evaluationsRunning, evaluationsQueued, sourceSuspended} {
		m.Reset()
	}
	questionsFollowed.Set(0)
	inWorld(t, Limits{Concurrency: 1}, func(t *testing.T, w *world, s *source) {
		s.takes = 500 * time.Millisecond
		q := asked("a")
		toSlot(q)
		var all sync.WaitGroup
		for range 3 { // a miss and two that share it
			all.Go(func() { w.mustAsk(q) })
		}
		all.Go(func() {
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() { _, _ = w.Query(ctx, asked("b")) }) // queued
			time.Sleep(700 * time.Millisecond)
			cancel() // under way: it goes on
		})
		all.Wait()
		time.Sleep(time.Second)
		w.mustAsk(q) // a hit
		defer w.subscribe(q, func(*Result, error) {})()
		s.set(down)
		_, _ = w.ask(asked("c")) // misses
		_, _ = w.ask(asked("d"))
		_, _ = w.ask(asked("e")) // refused, as the source is suspended by now
		want := `
# HELP metrics_backend_query_asked_total [ALPHA] Number of times that a question was asked, by result: hit, the answer or failure of the interval was there; shared, the evaluation was under way; miss, it was begun; refused, it was not evaluated, since its source is gone or suspended or there is too much to do.
# TYPE metrics_backend_query_asked_total counter
metrics_backend_query_asked_total{result="hit"} 1
metrics_backend_query_asked_total{result="miss"} 4
metrics_backend_query_asked_total{result="refused"} 1
metrics_backend_query_asked_total{result="shared"} 2
# HELP metrics_backend_query_evaluations_in_flight [ALPHA] Number of evaluations under way, by source.
# TYPE metrics_backend_query_evaluations_in_flight gauge
metrics_backend_query_evaluations_in_flight{source="p"} 0
# HELP metrics_backend_query_evaluations_queued [ALPHA] Number of questions that wait since as many evaluations of their source are under way as may be.
# TYPE metrics_backend_query_evaluations_queued gauge
metrics_backend_query_evaluations_queued{source="p"} 0
# HELP metrics_backend_query_evaluations_total [ALPHA] Number of evaluations that ended, by source and result: Success, the reason of the failure as in the status of the MetricsBackend, or Abandoned, of a source that was replaced meanwhile.
# TYPE metrics_backend_query_evaluations_total counter
metrics_backend_query_evaluations_total{result="ConnectionFailed",source="p"} 2
metrics_backend_query_evaluations_total{result="Success",source="p"} 2
# HELP metrics_backend_query_questions [ALPHA] Number of different questions that are held.
# TYPE metrics_backend_query_questions gauge
metrics_backend_query_questions 5
# HELP metrics_backend_query_questions_followed [ALPHA] Number of different questions that are evaluated each interval for watches.
# TYPE metrics_backend_query_questions_followed gauge
metrics_backend_query_questions_followed 1
# HELP metrics_backend_query_source_suspended [ALPHA] 1 while a source fails whatever it is asked, so that questions fail at once and but one at a time tries it; otherwise 0.
# TYPE metrics_backend_query_source_suspended gauge
metrics_backend_query_source_suspended{source="p"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "metrics_backend_query_asked_total", "metrics_backend_query_evaluations_in_flight",
			"metrics_backend_query_evaluations_queued", "metrics_backend_query_evaluations_total", "metrics_backend_query_questions",
			"metrics_backend_query_questions_followed", "metrics_backend_query_source_suspended"); err != nil {
			t.Error(err)
		}
	})
}
