// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
)

// Value is one value of a metric.
type Value struct {
	// Object is the name of the described object; empty for an external metric.
	Object string
	// Labels of the series, complete: with those that the Reading adds. They tell the
	// values of an external metric apart. Those of an object that several series were
	// joined for are nil. They are shared and must not be changed.
	Labels map[string]string
	// Quantity is exact to thousandths, in DecimalSI.
	Quantity resource.Quantity
	// Time of the sample as the source says; of several that were joined the
	// earliest, as a sum is only as new as its oldest part.
	Time time.Time
}

// Key is what tells a value from all others of its metric: the object's name, or
// the labels in order. It is stable, and the values are ordered by it.
func (v *Value) Key() string {
	if v.Object != "" {
		return v.Object
	}
	return labelKey(v.Labels)
}

// Unfit is why a series gave no value. It is also a metric label's value.
type OmitReason string

// Why a series gave no value.
const (
	OmitReasonNaN      OmitReason = "NaN"
	OmitReasonInfinite OmitReason = "Infinite"
	OmitReasonTooLarge OmitReason = "TooLarge"
	// UnfitDuplicate means: several series of one object, or with the same labels,
	// and the Reading does not say what becomes of them.
	OmitReasonDuplicate OmitReason = "Duplicate"
	// UnfitNoObject means: the series does not have the label that names its object.
	OmitReasonNoObject OmitReason = "NoObject"
)

// Omission tells of an object or a series that has no value.
type Omission struct {
	// Object is its name where that is known, and Labels are those of the series.
	Object  string
	Labels  map[string]string
	Reason  OmitReason
	Message string
}

// Error implements error.
func (o *Omission) Error() string { return string(o.Reason) + ": " + o.Message }

// maxOmissions is how many omissions are told of one by one.
const maxOmissions = 20

// Values are what a Reading makes of an answer.
type Values struct {
	// Time is the instant for which the question was evaluated.
	Time time.Time
	// Window is the longest range over which the values look back; zero for
	// instantaneous ones.
	Window time.Duration
	// Items are ordered by Key, and each Key is there once.
	Items []Value
	// Omitted are the first of Omissions things without a value.
	Omitted   []Omission
	Omissions int
	// Warnings of the source, in its own words.
	Warnings []string
	// Outage is why these values are stand-ins of the Reading's Fallback; nil for
	// those that the source gave.
	SourceError *EvaluationError
}

// ResourceVersion is that of a list of the values: the instant of evaluation in
// decimal milliseconds, the same on each replica that evaluates the question at
// that instant.
func (v *Values) ResourceVersion() string { return strconv.FormatInt(v.Time.UnixMilli(), 10) }

// Omission returns why an object has no value, or nil where nothing is known of it.
// An empty name stands for whatever has none.
func (v *Values) Omission(object string) *Omission {
	for i := range v.Omitted {
		if o := &v.Omitted[i]; object == "" || o.Object == object {
			return o
		}
	}
	return nil
}

func (v *Values) omit(object string, labels map[string]string, reason OmitReason, message string) {
	v.Omissions++
	if len(v.Omitted) < maxOmissions {
		v.Omitted = append(v.Omitted, Omission{Object: object, Labels: labels, Reason: reason, Message: message})
	}
}

// Values reads the values of a metric from what Ask returned, or what Follow told.
// The error is the one given, unless the Fallback covers it.
//
// Where an ObjectLabel names the objects, objects are those that are wanted, each once:
// no other one is read or told of, however many the answer has, and they have the value
// of a static fallback. Nil stands for all that the answer has.
func (r *MetricQuery) Values(answer *Result, err error, objects ...string) (*Values, error) {
	if err != nil {
		r.Problems.observe(r, nil, err, nil, objects)
		return r.fallback(err, objects)
	}
	v := r.values(answer, objects)
	r.Problems.observe(r, answer, nil, v, objects)
	return v, nil
}

func (r *MetricQuery) values(answer *Result, objects []string) *Values {
	v := &Values{Time: answer.Time, Window: answer.Window, Warnings: answer.Warnings}
	samples := answer.Samples
	if objects != nil && r.Object == "" && r.ObjectLabel != "" {
		samples = answer.of(r.ObjectLabel, objects)
	}
	r.read(v, samples)
	return v
}

// read reads samples into v.
func (r *MetricQuery) read(v *Values, samples []Sample) {
	parts := make([]part, 0, len(samples))
	for i := range samples {
		p := part{sample: &samples[i], index: i, labels: samples[i].Labels}
		if r.Select != nil && !r.Select.Matches(labels.Set(withLabels(p.labels, r.Labels))) {
			continue
		}
		switch {
		case r.Object != "":
			p.object = r.Object
		case r.ObjectLabel != "":
			if p.object = p.labels[r.ObjectLabel]; p.object == "" {
				v.omit("", p.labels, OmitReasonNoObject, fmt.Sprintf("the series does not have the label %q, which names the object", r.ObjectLabel))
				continue
			}
		default:
			p.labels = withLabels(p.labels, r.Labels)
			p.key = labelKey(p.labels)
		}
		if p.object != "" {
			p.key = p.object
		}
		parts = append(parts, p)
	}
	// In the source's order where keys are the same: a sum of floating-point numbers
	// depends on it.
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(strings.Compare(a.key, b.key), a.index-b.index) })
	v.Items = make([]Value, 0, len(parts))
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].key == parts[0].key {
			n++
		}
		r.join(v, parts[:n])
		parts = parts[n:]
	}
}

// part is a sample and what it is a value of.
type part struct {
	sample *Sample
	index  int
	key    string
	object string
	labels map[string]string
}

// join makes one value of the series of one key.
func (r *MetricQuery) join(v *Values, parts []part) {
	first := &parts[0]
	if len(parts) > 1 && (r.Duplicates == DuplicatesReject || r.Duplicates == "") {
		what := "of this object"
		if first.object == "" {
			what = "with these labels"
		}
		v.omit(first.object, first.labels, OmitReasonDuplicate, fmt.Sprintf(
			"the answer has %d series %s: aggregate in the query, or say in %s what becomes of them (duplicates)", len(parts), what, r.Origin))
		return
	}
	value, at := r.number(first.sample), first.sample.Time
	for _, p := range parts[1:] {
		value = r.combine(value, r.number(p.sample))
		if p.sample.Time.Before(at) {
			at = p.sample.Time
		}
	}
	if r.Duplicates == DuplicatesAverage {
		value /= float64(len(parts))
	}
	q, ok := quantity(value)
	if !ok {
		reason, message := unfit(value)
		v.omit(first.object, first.labels, reason, message)
		return
	}
	item := Value{Object: first.object, Labels: first.labels, Quantity: q, Time: at}
	if len(parts) > 1 && first.object != "" {
		item.Labels = nil
	}
	v.Items = append(v.Items, item)
}

// number is a sample's value.
func (r *MetricQuery) number(s *Sample) float64 {
	if r.NaNAsZero && s.Value != s.Value {
		return 0
	}
	return s.Value
}

// combine joins two values. What is no number stays so: nothing is made up for a
// part that is missing.
func (r *MetricQuery) combine(a, b float64) float64 {
	switch r.Duplicates {
	case DuplicatesMinimum:
		return min(a, b)
	case DuplicatesMaximum:
		return max(a, b)
	}
	return a + b
}

// withLabels adds labels, which win over those that are there.
func withLabels(of, more map[string]string) map[string]string {
	if len(more) == 0 {
		return of
	}
	joined := make(map[string]string, len(of)+len(more))
	maps.Copy(joined, of)
	maps.Copy(joined, more)
	return joined
}

// labelKey is a canonical form of labels.
func labelKey(labels map[string]string) string {
	var few [16]string
	names := few[:0]
	size := 2
	for name, value := range labels {
		names = append(names, name)
		size += len(name) + len(value) + len(`="",`)
	}
	slices.Sort(names)
	key := append(make([]byte, 0, size), '{')
	for i, name := range names {
		if i > 0 {
			key = append(key, ',')
		}
		key = append(append(key, name...), '=')
		key = strconv.AppendQuote(key, labels[name])
	}
	return string(append(key, '}'))
}
