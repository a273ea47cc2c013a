// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"time"

	"github.com/prometheus/common/model"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// maxAhead is how far a sample may be in the future of the instant that was asked
// for. A server answers for that very instant; some round it.
const maxAhead = time.Minute

// samplesOf takes the samples from a decoded answer.
func samplesOf(v model.Value, at time.Time) ([]query.Sample, *query.Failure) {
	switch v := v.(type) {
	case *model.Scalar:
		s, f := sampleOf(nil, v.Timestamp, v.Value, at)
		return []query.Sample{s}, f
	case model.Vector:
		samples := make([]query.Sample, len(v))
		for i, s := range v {
			if s == nil {
				return nil, failf(query.ReasonMalformed, "sample %d of the answer is null", i+1)
			}
			if s.Histogram != nil {
				return nil, failf(query.ReasonRejected, "%s is a native histogram, not a number: take one of it, with histogram_quantile(), histogram_count() or histogram_sum()", s.Metric)
			}
			var f *query.Failure
			if samples[i], f = sampleOf(s.Metric, s.Timestamp, s.Value, at); f != nil {
				return nil, f
			}
		}
		return samples, nil
	case model.Matrix:
		return nil, failf(query.ReasonRejected, "the answer is ranges of samples, not values: take one number of each, with a function such as rate(), increase() or last_over_time()")
	}
	return nil, failf(query.ReasonMalformed, "the answer holds no result")
}

func sampleOf(metric model.Metric, t model.Time, v model.SampleValue, at time.Time) (query.Sample, *query.Failure) {
	s := query.Sample{Value: float64(v), Time: t.Time()}
	if ahead := s.Time.Sub(at); ahead > maxAhead {
		return s, failf(query.ReasonMalformed, "a sample is of %s, though %s was asked for", s.Time.UTC().Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	}
	s.Labels = make(map[string]string, len(metric))
	for name, value := range metric {
		if name != model.MetricNameLabel {
			s.Labels[string(name)] = string(value)
		}
	}
	return s, nil
}
