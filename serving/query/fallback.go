// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import "errors"

// fallback returns what stands in for the values of a source that fails, or the
// error. A last value keeps its time; a static one is of when the failure was found.
func (r *MetricQuery) fallback(err error, objects []string) (*Values, error) {
	var outage *EvaluationError
	if r.Fallback == nil || !errors.As(err, &outage) || outage.FailedIntervals < max(r.Fallback.AfterFailures, 1) {
		return nil, err
	}
	if r.Fallback.Static != nil {
		return r.static(outage, objects)
	}
	last := outage.LastResult
	if last == nil || outage.Time.Sub(last.Time) > r.Fallback.MaxAge {
		return nil, err
	}
	v := r.values(last, objects)
	v.SourceError = outage
	return v, nil
}

// static gives the static value to the objects that are asked for, or as the one
// value of a metric that describes none, with the labels that were selected by.
func (r *MetricQuery) static(outage *EvaluationError, objects []string) (*Values, error) {
	v := &Values{Time: outage.Time, SourceError: outage}
	if r.Object != "" || r.ObjectLabel == "" {
		objects = []string{""} // which has no label of its own
	}
	samples := make([]Sample, len(objects))
	for i, object := range objects {
		labels := r.selected()
		if r.ObjectLabel != "" {
			labels[r.ObjectLabel] = object
		}
		samples[i] = Sample{Labels: labels, Value: *r.Fallback.Static, Time: outage.Time}
	}
	r.read(v, samples)
	return v, nil
}

// selected returns the labels whose values Select fixes.
func (r *MetricQuery) selected() map[string]string {
	fixed := map[string]string{}
	if r.Select == nil {
		return fixed
	}
	requirements, _ := r.Select.Requirements()
	for i := range requirements {
		key := requirements[i].Key()
		if value, exact := r.Select.RequiresExactMatch(key); exact {
			fixed[key] = value
		}
	}
	return fixed
}
