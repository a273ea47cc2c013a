// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package series knows which time series a source has, as far as rules need it: by
// matcher, the names of the series and of their labels. Each matcher is looked up by
// itself, so that one which is slow or wrong stops no other
// (kubernetes-sigs/prometheus-adapter#225).
package series

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Series is all series of one name that have the same names of labels. It is immutable.
type Series struct {
	// Name of the series (`__name__`).
	Name string
	// Labels are the names of its labels in order, without __name__.
	Labels []string
	// Count is about how many there are: rounded up to a power of two, so that it is
	// news only when it has changed much.
	Count int
}

// Has says whether the series have a label.
func (s Series) Has(label string) bool {
	_, found := slices.BinarySearch(s.Labels, label)
	return found
}

func (s Series) compare(o Series) int {
	if c := cmp.Compare(s.Name, o.Name); c != 0 {
		return c
	}
	return slices.Compare(s.Labels, o.Labels)
}

// Found is what is known of a matcher's series. It is immutable and shared.
type Found struct {
	// Series in order, each once.
	Series []Series
	// Time is when the newest look that succeeded was made; zero before the first.
	// While looks fail, the series of that time stay.
	Time time.Time
	// Err is why the newest look failed, a query.Failure; nil when it did not.
	Err error
	// Cut says that there are more than MaxSeries, or than could be read, and the
	// others are missing.
	Cut bool
}

// MaxSeries bounds what is kept for one matcher: names, each with a set of labels.
// That many are a rule about everything in a very large cluster.
const MaxSeries = 20000

// Lookup asks a source for the series that match and have samples between two
// instants, and calls visit with the labels of each. visit keeps nothing of the map.
// With ErrCut not all were visited, as there are too many.
type Lookup func(ctx context.Context, matcher string, from, to time.Time, visit func(labels map[string]string)) error

// ErrCut is returned by a Lookup that has visited as many series as it could read.
var ErrCut = errors.New("there are more series than can be read")

// maxLookSize bounds, in bytes, the names that one look keeps.
const maxLookSize = 64 << 20

// look is the result of one look: what was seen.
type look struct {
	kinds map[string]*Series
	cut   bool
	// size is about what the kinds take.
	size int
	// names are label names and series names, each once.
	names  map[string]string
	labels []string
	key    []byte
}

func newLook() *look {
	return &look{kinds: map[string]*Series{}, names: map[string]string{}}
}

// visit takes in a series, without memory for one whose like was seen.
func (l *look) visit(labels map[string]string) {
	name := labels["__name__"]
	if name == "" {
		return
	}
	l.labels = l.labels[:0]
	for label := range labels {
		if label != "__name__" {
			l.labels = append(l.labels, label)
		}
	}
	slices.Sort(l.labels)
	l.key = append(l.key[:0], name...)
	for _, label := range l.labels {
		l.key = append(append(l.key, 0xff), label...)
	}
	if known := l.kinds[string(l.key)]; known != nil {
		known.Count++
		return
	}
	size := len(l.key) + 16*len(l.labels)
	if len(l.kinds) == MaxSeries || l.size+size > maxLookSize {
		l.cut = true
		return
	}
	l.size += size
	s := &Series{Name: l.intern(name), Labels: make([]string, len(l.labels)), Count: 1}
	for i, label := range l.labels {
		s.Labels[i] = l.intern(label)
	}
	l.kinds[string(l.key)] = s
}

func (l *look) intern(s string) string {
	if kept, ok := l.names[s]; ok {
		return kept
	}
	l.names[s] = s
	return s
}
