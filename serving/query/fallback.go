// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import "errors"

// fallback returns what stands in for the values of a source that fails, or the
// error. A last value keeps its time; a static one is of when the failure was found.
func (r *Reading) fallback(err error, objects []string) (*Values, error) {
	var outage *Outage
	if r.Fallback == nil || !errors.As(err, &outage) || outage.Failures < max(r.Fallback.AfterFailures, 1) {
		return nil, err
	}
	if r.Fallback.Static != nil {
		return r.static(outage, objects)
	}
	last := outage.Last
	if last == nil || outage.Time.Sub(last.Time) > r.Fallback.MaxAge {
		return nil, err
	}
	v, err := r.Values(last, nil)
	if err != nil {
		return nil, err
	}
	v.Outage = outage
	return v, nil
}

// static gives the static value to the objects that are asked for, or as the one
// value of a metric that describes none.
func (r *Reading) static(outage *Outage, objects []string) (*Values, error) {
	v := &Values{Time: outage.Time, Outage: outage}
	switch {
	case r.Object != "":
		objects = []string{r.Object}
	case r.ObjectLabel == "":
		objects = []string{""}
	}
	samples := make([]Sample, len(objects))
	for i, object := range objects {
		samples[i] = Sample{Value: *r.Fallback.Static, Time: outage.Time}
		if r.ObjectLabel != "" && r.Object == "" {
			samples[i].Labels = map[string]string{r.ObjectLabel: object}
		}
	}
	r.read(v, samples)
	return v, nil
}
