// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package series discovers which time series a source has: for each selector, the names of
// the series and of their labels. Each selector is looked up separately, so that a slow or
// invalid one does not affect the others (kubernetes-sigs/prometheus-adapter#225).
package series

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Series is all series with the same metric name and the same label names. It is immutable.
type Series struct {
	// Name is the metric's name (`__name__`).
	Name string
	// Labels are the label names in order, without __name__.
	Labels []string
	// Count is the number of series, rounded up to a power of two so that small changes are
	// not reported.
	Count int
}

// Has reports whether the series have a label.
func (s Series) Has(label string) bool {
	_, found := slices.BinarySearch(s.Labels, label)
	return found
}

func (s Series) compare(o Series) int {
	return cmp.Or(strings.Compare(s.Name, o.Name), slices.Compare(s.Labels, o.Labels))
}

// Found is what lookups of a matcher have found. It is immutable and shared.
type Found struct {
	// Series are in order and without duplicates.
	Series []Series
	// Time is that of the newest successful lookup; zero before the first. If later lookups
	// fail, the series of that one stay.
	Time time.Time
	// Err is the query.Failure of the newest lookup, or nil if it succeeded.
	Err error
	// Truncated is set if there are more than MaxSeries, or than could be read.
	Truncated bool
	// Ended is the time of the last lookup that returned the series that were removed last; zero if
	// none was.
	Ended time.Time
}

// MaxSeries limits the series that are kept of one matcher, enough for a rule about everything
// in a very large cluster.
const MaxSeries = 20000

// Lookup queries a source for the series that match and have samples between two instants,
// and calls visit with the labels of each; visit must not keep the map. It returns
// ErrTruncated if there are too many to visit all.
type Lookup func(ctx context.Context, matcher string, from, to time.Time, visit func(labels map[string]string)) error

// ErrTruncated is returned by a Lookup that has visited as many series as it could read.
var ErrTruncated = errors.New("there are more series than can be read")

// maxLookupSize limits, in bytes, the names that one lookup keeps, and those that are kept of all.
const maxLookupSize = 64 << 20

// seriesSet holds the series that one lookup visited.
type seriesSet struct {
	byKey     map[string]*Series
	truncated bool
	// size is the approximate memory that the series take.
	size int
	// names interns metric names and label names.
	names  map[string]string
	labels []string
	key    []byte
}

func newSeriesSet() *seriesSet {
	return &seriesSet{byKey: map[string]*Series{}, names: map[string]string{}}
}

// visit counts a series. It allocates only for a new combination of names.
func (s *seriesSet) visit(labels map[string]string) {
	name := labels["__name__"]
	if name == "" {
		return
	}
	s.labels = s.labels[:0]
	for label := range labels {
		if label != "__name__" {
			s.labels = append(s.labels, label)
		}
	}
	slices.Sort(s.labels)
	s.key = append(s.key[:0], name...)
	for _, label := range s.labels {
		s.key = append(append(s.key, 0xff), label...)
	}
	if known := s.byKey[string(s.key)]; known != nil {
		known.Count++
		return
	}
	size := seriesSize(len(s.key), len(s.labels))
	if len(s.byKey) == MaxSeries || s.size+size > maxLookupSize {
		s.truncated = true
		return
	}
	s.size += size
	series := &Series{Name: s.intern(name), Labels: make([]string, len(s.labels)), Count: 1}
	for i, label := range s.labels {
		series.Labels[i] = s.intern(label)
	}
	s.byKey[string(s.key)] = series
}

// seriesSize returns about the memory of a series by the length of its key, which has all names once
// more, and the number of its labels.
func seriesSize(key, labels int) int { return 2*key + 16*labels }

func (s *seriesSet) intern(name string) string {
	if known, ok := s.names[name]; ok {
		return known
	}
	s.names[name] = name
	return name
}
