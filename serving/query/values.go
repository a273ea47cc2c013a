// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Value is one value of a metric.
type Value struct {
	// Object is the name of the described object; empty for an external metric.
	Object string
	// Labels of the series, including those of the MetricQuery. They distinguish the values of
	// an external metric. They are nil if several series of one object were combined. They are
	// shared and must not be changed.
	Labels map[string]string
	// Quantity is exact to thousandths, in DecimalSI.
	Quantity resource.Quantity
	// Time of the sample as returned by the source; the earliest one if several were
	// combined, as a sum is only as new as its oldest part.
	Time time.Time
	// Passed is the object of the Sample's, if it has one.
	Passed runtime.Object

	// ordinal counts the values before it of another implementation with the same object or labels.
	ordinal int
}

// Key identifies a value of its metric: the object's name, or the labels in order. It is
// stable, and values are ordered by it.
func (v *Value) Key() string {
	key := v.Object
	if key == "" {
		key = labelKey(v.Labels)
	}
	if v.ordinal > 0 {
		key += "#" + strconv.Itoa(v.ordinal)
	}
	return key
}

// OmitReason is why a series has no value. It is also a metric label's value.
type OmitReason string

// Reasons why a series has no value.
const (
	OmitReasonNaN      OmitReason = "NaN"
	OmitReasonInfinite OmitReason = "Infinite"
	OmitReasonTooLarge OmitReason = "TooLarge"
	// OmitReasonDuplicate means: there are several series of one object, or with the same
	// labels, and the MetricQuery does not combine them.
	OmitReasonDuplicate OmitReason = "Duplicate"
	// OmitReasonNoObject means: the series lacks the label that names its object.
	OmitReasonNoObject OmitReason = "NoObject"
)

// Omission is an object or a series without a value.
type Omission struct {
	// Object is its name if that is known, and Labels are those of the series.
	Object  string
	Labels  map[string]string
	Reason  OmitReason
	Message string
}

// Error implements error.
func (o *Omission) Error() string { return string(o.Reason) + ": " + o.Message }

// maxOmissions limits the omissions that are listed.
const maxOmissions = 20

// Values are the values that a MetricQuery reads from a result.
type Values struct {
	// Time is the instant for which the query was evaluated.
	Time time.Time
	// Window is the longest range over which the values look back; zero for
	// instantaneous ones.
	Window time.Duration
	// Items are ordered by Key, which is unique.
	Items []Value
	// Omitted are the first of Omissions things without a value.
	Omitted   []Omission
	Omissions int
	// Warnings of the source.
	Warnings []string
	// SourceError is why these values are those of the Fallback; nil for values from the source.
	SourceError *EvaluationError
}

// ResourceVersion returns that of a list of the values: the instant of evaluation in
// milliseconds, equal on all replicas that evaluate the query at that instant.
func (v *Values) ResourceVersion() string { return ResourceVersion(v.Time) }

// ResourceVersion returns that of a list of values that were evaluated at an instant.
func ResourceVersion(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// Omission returns the first listed omission of an object, or of anything if object is empty;
// nil if there is none.
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

// Values reads the values of a metric from what a Querier returned. The error is the one
// given, unless there is a Fallback for it; a BadRequest wraps it if the source cannot parse the
// client's selector. If an external metric has no value since some of its series have none, the
// error is a NotFound that wraps the first Omission, and the values have all of them and no Items.
//
// If ObjectLabel is set, only the given objects are read and reported, each of which is given
// once, and a static fallback has a value for each. Nil reads all objects of the result.
func (m *MetricQuery) Values(result *Result, err error, objects ...string) (*Values, error) {
	if refused := m.selectorError(err); refused != nil {
		return nil, refused // the rule and its source are no problem to report
	}
	if err != nil {
		m.Problems.observe(m, nil, err, nil, objects)
		return m.fallbackValues(err, objects)
	}
	v := m.read(result, objects)
	m.Problems.observe(m, result, nil, v, objects)
	return v, m.reject(v)
}

func (m *MetricQuery) read(result *Result, objects []string) *Values {
	v := &Values{Time: result.Time, Window: m.Window, Warnings: result.Warnings}
	samples := result.Samples
	if objects != nil && m.Object == "" && m.ObjectLabel != "" {
		samples = result.withLabelValues(m.ObjectLabel, objects)
	}
	m.readSamples(v, samples)
	return v
}

// keyedSample is a sample and what it is a value of.
type keyedSample struct {
	sample *Sample
	index  int
	key    string
	object string
	labels map[string]string
}

// readSamples adds the values of samples to v.
func (m *MetricQuery) readSamples(v *Values, samples []Sample) {
	keyed := make([]keyedSample, 0, len(samples))
	for i := range samples {
		k := keyedSample{sample: &samples[i], index: i, labels: samples[i].Labels}
		if m.Select != nil && !m.Select.Matches(labels.Set(mergeLabels(k.labels, m.Labels))) {
			continue
		}
		switch {
		case m.Object != "":
			k.object = m.Object
		case m.ObjectLabel != "":
			if k.object = k.labels[m.ObjectLabel]; k.object == "" {
				v.omit("", k.labels, OmitReasonNoObject, fmt.Sprintf("the series does not have the label %q, which names the object", m.ObjectLabel))
				continue
			}
		default:
			k.labels = mergeLabels(k.labels, m.Labels)
			k.key = labelKey(k.labels)
		}
		if k.object != "" {
			k.key = k.object
		}
		keyed = append(keyed, k)
	}
	// Equal keys stay in the source's order, on which a sum of floating-point numbers depends.
	slices.SortFunc(keyed, func(a, b keyedSample) int { return cmp.Or(strings.Compare(a.key, b.key), a.index-b.index) })
	v.Items = make([]Value, 0, len(keyed))
	for len(keyed) > 0 {
		n := 1
		for n < len(keyed) && keyed[n].key == keyed[0].key {
			n++
		}
		m.combine(v, keyed[:n])
		keyed = keyed[n:]
	}
}

// combine adds the value of the samples with one key to v.
func (m *MetricQuery) combine(v *Values, samples []keyedSample) {
	first := &samples[0]
	if m.Passes {
		for i, k := range samples {
			v.Items = append(v.Items, Value{Object: k.object, Labels: k.labels, Quantity: k.sample.Passed.Quantity, Time: k.sample.Time, Passed: k.sample.Passed.Object, ordinal: i})
		}
		return
	}
	if len(samples) > 1 && (m.Duplicates == v1alpha1.DuplicatesReject || m.Duplicates == "") {
		what := "of this object"
		if first.object == "" {
			what = "with these labels"
		}
		v.omit(first.object, first.labels, OmitReasonDuplicate, fmt.Sprintf(
			"the result has %d series %s: aggregate in the query, or set how to combine them in %s (duplicatesPolicy)", len(samples), what, m.Origin))
		return
	}
	value, at, invalid := m.joined(samples)
	q, ok := quantity(value)
	if !ok {
		reason, message := m.omitReason(value, invalid)
		if invalid != nil && len(samples) > 1 {
			message = fmt.Sprintf("of its series %s %s", text.Printable(labelKey(invalid.Labels), maxLabels), message)
		}
		v.omit(first.object, first.labels, reason, message)
		return
	}
	if invalid != nil {
		reason, message := m.omitReason(m.number(invalid), invalid)
		v.omit("", invalid.Labels, reason, message) // the object has a value
	}
	item := Value{Object: first.object, Labels: first.labels, Quantity: q, Time: at}
	if len(samples) > 1 && first.object != "" {
		item.Labels = nil
	}
	v.Items = append(v.Items, item)
}

// joined returns the value that samples have together, with the earliest time, and the first one without
// a usable number. That is their value, too, unless the rest is: the minimum of 5 and +Inf is not 5.
func (m *MetricQuery) joined(samples []keyedSample) (value float64, at time.Time, invalid *Sample) {
	n := 0.0
	for _, k := range samples {
		next := m.number(k.sample)
		switch {
		case math.IsNaN(next) || math.Abs(next) > maxQuantity:
			invalid = cmp.Or(invalid, k.sample)
			continue
		case n == 0:
			value, at = next, k.sample.Time
		case m.Duplicates == v1alpha1.DuplicatesMinimum:
			value = min(value, next)
		case m.Duplicates == v1alpha1.DuplicatesMaximum:
			value = max(value, next)
		default:
			value += next
		}
		if n++; k.sample.Time.Before(at) {
			at = k.sample.Time
		}
	}
	switch {
	case invalid != nil && (n == 0 || !m.OmitInvalid):
		value = m.number(invalid)
	case m.Duplicates == v1alpha1.DuplicatesAverage:
		value /= n
	}
	return value, at, invalid
}

// number returns a sample's value, with NaNAsZero applied, and NaN for one that is too old.
func (m *MetricQuery) number(s *Sample) float64 {
	if m.tooOld(s) {
		return math.NaN()
	}
	if m.NaNAsZero && s.Value != s.Value {
		return 0
	}
	return s.Value
}

// mergeLabels returns labels with more added, which take precedence.
func mergeLabels(of, more map[string]string) map[string]string {
	if len(more) == 0 {
		return of
	}
	merged := make(map[string]string, len(of)+len(more))
	maps.Copy(merged, of)
	maps.Copy(merged, more)
	return merged
}

// labelKey returns a canonical form of labels.
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
