// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"
	promengine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// engine is a source that evaluates queries by Prometheus' own engine, always as of the same instant.
type engine struct {
	*promengine.Engine
	series []storage.Series
	// expressions are those that were evaluated, and failed are how many of them failed.
	expressions []string
	failed      int
}

var engineTime = time.UnixMilli(1_700_000_000_000)

func newEngine(t testing.TB) *engine {
	e := promengine.NewEngine(promengine.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		Parser:                   parser.NewParser(parser.Options{}),
	})
	t.Cleanup(func() { _ = e.Close() })
	return &engine{Engine: e}
}

// add adds a series with samples of the last minutes before engineTime, the newest one last.
func (e *engine) add(labels map[string]string, values ...float64) {
	points := make([]chunks.Sample, len(values))
	for i, v := range values {
		points[i] = point{engineTime.Add(time.Duration(i+1-len(values)) * 30 * time.Second).UnixMilli(), v}
	}
	e.series = append(e.series, storage.NewListSeries(promlabels.FromMap(labels), points))
}

// point is a chunks.Sample with a float.
type point struct {
	chunks.Sample
	at    int64
	value float64
}

// Evaluate implements query.Source.
func (e *engine) Evaluate(ctx context.Context, q query.Query, _ time.Time) (*query.Result, error) {
	result, err := e.answer(ctx, q.Expression)
	e.expressions = append(e.expressions, q.Expression)
	if err != nil {
		e.failed++
		return nil, &query.Failure{Reason: query.ReasonRejected, Message: err.Error()}
	}
	return result, nil
}

func (e *engine) answer(ctx context.Context, expression string) (*query.Result, error) {
	q, err := e.NewInstantQuery(ctx, e, nil, expression, engineTime)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	vector, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, err
	}
	result := &query.Result{Time: engineTime}
	for _, s := range vector {
		labels := s.Metric.Map()
		delete(labels, "__name__")
		result.Samples = append(result.Samples, query.Sample{Labels: labels, Value: s.F, Time: time.UnixMilli(s.T)})
	}
	return result, nil
}
