// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// declaredTimeout limits the duration of a report. It contains the results until then.
	declaredTimeout = 5 * time.Second
	// declaredConcurrency is how many metrics a report queries at a time; the evaluator
	// has limits of its own for each source.
	declaredConcurrency = 32
	// maxMessage limits the bytes of a metric's message, so that no namespace's metrics
	// dominate a report. A condition's message has the same limit.
	maxMessage = 1024
	// ReasonNoValues is the reason of a metric whose query returns no values.
	ReasonNoValues = "NoValues"
	// reasonPending is the reason of a metric without a result before the timeout.
	reasonPending = "Pending"
)

// DeclaredReport queries each declared metric, as any client would, and returns how each
// does. Namespaces share the queries, and when time runs out, the next report starts with
// the metrics whose result is oldest.
func (r *Reporter) DeclaredReport(ctx context.Context) v1alpha1.DeclaredReport {
	declared := r.Catalog.Declared()
	report := v1alpha1.DeclaredReport{Metrics: make([]v1alpha1.DeclaredHealth, len(declared))}
	ctx, cancel := context.WithTimeout(ctx, declaredTimeout)
	defer cancel()
	number := r.queries.startReport(declared)
	var pending []pendingQuery
	for i := range declared {
		if declared[i].Reason != "" {
			report.Metrics[i] = healthOf(&declared[i], nil, nil)
			continue
		}
		q := declared[i].MetricQuery.Query
		pending = append(pending, pendingQuery{metric: i, resultTime: r.resultTime(q), lastReport: r.queries.lastReport(q)})
	}
	queue := newFairQueue(declared, pending)
	done := make(chan *namespaceQueue)
	for running := 0; running > 0 || len(queue) > 0; {
		if running == declaredConcurrency || len(queue) == 0 {
			(<-done).running--
			running--
			continue
		}
		metric, namespace := queue.next()
		running++
		if ctx.Err() == nil {
			r.queries.record(declared[metric].MetricQuery.Query, number)
		}
		go func() {
			report.Metrics[metric] = r.query(ctx, &declared[metric])
			done <- namespace
		}()
	}
	return report
}

// query returns how a metric does, by its cached result once the context has ended.
func (r *Reporter) query(ctx context.Context, d *rules.Declared) v1alpha1.DeclaredHealth {
	result, err := r.Evaluator.Query(ctx, d.MetricQuery.Query)
	if ctx.Err() != nil {
		var cached bool
		if result, err, cached = r.Evaluator.Cached(d.MetricQuery.Query); !cached {
			h := healthOf(d, nil, nil)
			h.Reason, h.Message = reasonPending, "the source has not answered yet"
			return h
		}
	}
	values, err := d.MetricQuery.Values(result, err)
	return healthOf(d, values, err)
}

// resultTime returns the time of the cached result or error of a query; zero for none.
func (r *Reporter) resultTime(q query.Query) time.Time {
	result, err, _ := r.Evaluator.Cached(q)
	if failed, ok := errors.AsType[*query.EvaluationError](err); ok {
		return failed.Time
	}
	if result != nil {
		return result.Time
	}
	return time.Time{}
}

// healthOf returns how a declared metric does, by its values or the error of its query.
func healthOf(d *rules.Declared, values *query.Values, err error) v1alpha1.DeclaredHealth {
	h := unboundedHealthOf(d, values, err)
	h.Message = text.Truncate(h.Message, maxMessage)
	return h
}

func unboundedHealthOf(d *rules.Declared, values *query.Values, err error) v1alpha1.DeclaredHealth {
	h := d.DeclaredHealth
	switch {
	case err != nil:
		h.Reason, h.Message = query.ReasonOf(err, string(query.ReasonInternal))
		return h
	case values == nil:
		return h
	}
	h.Values = len(values.Items)
	if h.Values == 1 {
		h.Value = values.Items[0].Quantity.String()
	}
	for i := range values.Items {
		if at := values.Items[i].Time; at.After(h.Time.Time) {
			h.Time = metav1.NewTime(at)
		}
	}
	switch {
	case values.SourceError != nil:
		h.Fallback = true
		h.Reason, h.Message = query.ReasonOf(values.SourceError, string(query.ReasonInternal))
	case h.Values > 0:
		h.Ready = true
		if d.Remark != "" {
			h.Reason, h.Message = v1alpha1.ReasonCollision, d.Remark
		}
	case values.Omissions > 0:
		h.Reason, h.Message = ReasonNoValues, "no series of the answer gives a value"
		if first := values.Omission(""); first != nil {
			h.Reason, h.Message = string(first.Reason), first.Message
		}
	default:
		h.Reason, h.Message = ReasonNoValues, "the query answers no series: check that it selects some in this namespace"
	}
	return h
}
