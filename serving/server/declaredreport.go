// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/rules"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

const (
	// declaredTimeout limits how long a report waits for results: it has those that arrived
	// by then.
	declaredTimeout = 5 * time.Second
	// declaredConcurrency limits the concurrent queries of a report, see tenantQueue; the limit of the
	// Evaluator for each source is lower.
	declaredConcurrency = 32
	// reasonNoValues means that the result of the query has no values.
	reasonNoValues = "NoValues"
	// reasonPending means that there was no result before the report ended.
	reasonPending = "Pending"
)

// declaredReport queries each declared metric like any other client, and shares cached results
// with them. Namespaces share the concurrency, and no metric is always the one for which no
// time is left.
func (v *valueMetrics) declaredReport(ctx context.Context) v1alpha1.DeclaredReport {
	declared := v.catalogue.Declared()
	report := v1alpha1.DeclaredReport{Metrics: make([]v1alpha1.DeclaredHealth, len(declared))}
	ctx, cancel := context.WithTimeout(ctx, declaredTimeout)
	defer cancel()
	number := v.queryLog.beginReport(declared)
	var queued []queuedMetric
	for i := range declared {
		if declared[i].Reason != "" {
			report.Metrics[i] = healthOf(&declared[i], nil, nil)
			continue
		}
		q := declared[i].MetricQuery.Query
		queued = append(queued, queuedMetric{metric: i, cachedTime: cachedTime(v.evaluator, q), lastReport: v.queryLog.lastReport(q)})
	}
	queue := newTenantQueue(declared, queued)
	ended := make(chan *tenant)
	for running := 0; running > 0 || queue.Len() > 0; {
		if running == declaredConcurrency || queue.Len() == 0 {
			queue.done(<-ended)
			running--
			continue
		}
		metric, of := queue.next()
		running++
		if ctx.Err() == nil {
			v.queryLog.record(declared[metric].MetricQuery.Query, number)
		}
		go func() {
			report.Metrics[metric] = v.declaredHealth(ctx, &declared[metric])
			ended <- of
		}()
	}
	return report
}

// declaredHealth returns the health of a metric, by its cached result if the context has ended.
func (v *valueMetrics) declaredHealth(ctx context.Context, d *rules.Declared) v1alpha1.DeclaredHealth {
	answer, err := v.evaluator.Query(ctx, d.MetricQuery.Query)
	if ctx.Err() != nil {
		var known bool
		if answer, err, known = v.evaluator.Cached(d.MetricQuery.Query); !known {
			h := healthOf(d, nil, nil)
			h.Reason, h.Message = reasonPending, "the source has not answered yet"
			return h
		}
	}
	values, err := d.MetricQuery.Values(answer, err)
	return healthOf(d, values, err)
}

// healthOf returns the health of a declared metric, by its values or the error.
func healthOf(d *rules.Declared, values *query.Values, err error) v1alpha1.DeclaredHealth {
	h := v1alpha1.DeclaredHealth{
		Kind: d.Kind, Namespace: d.Namespace, Name: d.Name, UID: d.UID, Generation: d.Generation, Reason: d.Reason, Message: d.Message,
	}
	switch {
	case err != nil:
		h.Reason, h.Message = failureOf(err)
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
		h.Reason, h.Message = failureOf(values.SourceError)
	case h.Values > 0:
		h.Ready = true
		if d.Remark != "" {
			h.Reason, h.Message = v1alpha1.ReasonCollision, d.Remark
		}
	case values.Omissions > 0:
		h.Reason, h.Message = reasonNoValues, "no series of the answer gives a value"
		if first := values.Omission(""); first != nil {
			h.Reason, h.Message = string(first.Reason), first.Message
		}
	default:
		h.Reason, h.Message = reasonNoValues, "the query answers no series: check that it selects some in this namespace"
	}
	return h
}

// failureOf returns the reason of a failure, and the source's error message.
func failureOf(err error) (reason, message string) {
	var f *query.Failure
	if errors.As(err, &f) {
		return string(f.Reason), f.Message
	}
	return string(query.ReasonInternal), err.Error()
}
