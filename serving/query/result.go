// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Sample is one value of a result. It is immutable.
type Sample struct {
	// Labels are all labels of the series, without the metric's name.
	Labels map[string]string
	// Value as returned by the source; it may be NaN or infinite.
	Value float64
	// Time of the sample, as returned by the source: that of the newest samples that the value is computed
	// from, of several series that of the oldest, if the query asks for it and the source knows. Otherwise
	// it is the instant of evaluation.
	Time time.Time
	// Age is that of the sample at the instant of evaluation: EndedAge if no sample is known, and zero
	// without SampleTimes.
	Age time.Duration
	// Passed is the value as another implementation answered it, which clients get unchanged; nil for others.
	Passed *Passed
}

// Passed is a value of another implementation. It is immutable.
type Passed struct {
	// Object of the API, in its internal version.
	Object   runtime.Object
	Quantity resource.Quantity
}

// Result is what a source returned for a query. It is immutable, shared and not copied.
type Result struct {
	// Time is the instant for which the query was evaluated.
	Time time.Time
	// Samples in the order of the source.
	Samples []Sample
	// SampleTimes says that the samples have their own times.
	SampleTimes bool
	// Warnings of the source.
	Warnings []string
	// Bytes is about what Samples and Warnings take in memory, labels included.
	Bytes int

	index labelIndex
}

// labelIndex finds samples by the value of a label. It is built on first use, once for all
// clients that share the result: each reads a few objects of what may be a whole namespace.
type labelIndex struct {
	mu      sync.Mutex
	byLabel map[string][]indexEntry
}

// indexEntry is the position of a sample, and the value of its label.
type indexEntry struct {
	value    string
	position int
}

// withLabel returns the samples that have a label, ordered by its value and then by position.
func (r *Result) withLabel(label string) []indexEntry {
	r.index.mu.Lock()
	defer r.index.mu.Unlock()
	if all, ok := r.index.byLabel[label]; ok {
		return all
	}
	all := make([]indexEntry, 0, len(r.Samples))
	for i := range r.Samples {
		if value := r.Samples[i].Labels[label]; value != "" {
			all = append(all, indexEntry{value, i})
		}
	}
	slices.SortFunc(all, func(a, b indexEntry) int {
		return cmp.Or(strings.Compare(a.value, b.value), a.position-b.position)
	})
	if r.index.byLabel == nil {
		// Bounded: rules decide which labels name objects, and there are one or two.
		r.index.byLabel = map[string][]indexEntry{}
	}
	r.index.byLabel[label] = all
	return all
}

// withLabelValues returns the samples whose label has one of the values, in the order of values.
func (r *Result) withLabelValues(label string, values []string) []Sample {
	all := r.withLabel(label)
	samples := make([]Sample, 0, min(len(all), len(values)))
	for _, value := range values {
		i, _ := slices.BinarySearchFunc(all, value, func(e indexEntry, value string) int { return strings.Compare(e.value, value) })
		for ; i < len(all) && all[i].value == value; i++ {
			samples = append(samples, r.Samples[all[i].position])
		}
	}
	return samples
}
