// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

// family is all series of one name that a lookup found.
type family struct {
	name string
	// labels are those that any of the series has, and common those that all have, in order.
	labels, common []string
	// count is the number of series, updated without replacing the family.
	count *atomic.Int64
}

// discovered is the result of a selection's lookups.
type discovered struct {
	families map[string]*family
	series   []series.Series
	// known is set once a lookup has succeeded.
	known bool
	// truncated is set if there are more series.
	truncated bool
	err       error
}

// commonFirst returns the labels with those that all series have first. A scraped workload could
// otherwise, by a label of its own, choose the label that names the namespace or object of all
// other series. (By omitting a label it can still exclude that one: then values of others are
// missing, but not attributed to someone else.)
func (f *family) commonFirst(labels []string) []string {
	ordered := slices.Clone(labels)
	slices.SortStableFunc(ordered, trueFirst(func(label string) bool {
		_, common := slices.BinarySearch(f.common, label)
		return common
	}))
	return ordered
}

// trueFirst compares what a condition holds for as less than others.
func trueFirst[T any](holds func(T) bool) func(a, b T) int {
	return func(a, b T) int {
		switch first := holds(a); {
		case first == holds(b):
			return 0
		case first:
			return -1
		}
		return 1
	}
}

// families groups series by name.
func families(found []series.Series) map[string]*family {
	all := make(map[string]*family, len(found))
	for i := range found {
		s := &found[i]
		if s.Name == "" {
			continue
		}
		f := all[s.Name]
		if f == nil {
			f = &family{name: s.Name, labels: s.Labels, common: s.Labels, count: &atomic.Int64{}}
			all[s.Name] = f
		} else if !slices.Equal(f.labels, s.Labels) {
			f.labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(f.labels, s.Labels))))
			f.common = slices.DeleteFunc(slices.Clone(f.common), func(label string) bool { return !s.Has(label) })
		}
		f.count.Add(int64(s.Count))
	}
	return all
}

// SetFound sets what discovery has found for a selection.
func (c *Catalog) SetFound(s Selection, f series.Found) {
	switch {
	case !f.Time.IsZero():
		c.setSeries(s, f)
	case f.Err != nil:
		c.SetSeriesFailure(s, f.Err)
	}
}

// SetSeries sets all series of a selection, and keeps the slice. Its cost is proportional to
// what has changed.
func (c *Catalog) SetSeries(s Selection, all []series.Series) {
	c.setSeries(s, series.Found{Series: all})
}

// setSeries sets the series of a selection, and the error of a later lookup.
func (c *Catalog) setSeries(s Selection, found series.Found) {
	all, truncated, err := found.Series, found.Truncated, found.Err
	c.changing.Lock()
	defer c.changing.Unlock()
	f := c.discoveredBy(s)
	if f == nil {
		return
	}
	changedState := !f.known || fmt.Sprint(f.err) != fmt.Sprint(err) || f.truncated != truncated
	// Discovery returns the same slice while nothing changes.
	same := f.known && len(all) == len(f.series) && (len(all) == 0 || &all[0] == &f.series[0])
	if same && !changedState {
		return
	}
	f.series = all
	next := families(all)
	f.known, f.err, f.truncated = true, err, truncated
	var changed, gone []*family
	for name, fresh := range next {
		old := f.families[name]
		if old != nil && slices.Equal(old.labels, fresh.labels) && slices.Equal(old.common, fresh.common) {
			old.count.Store(fresh.count.Load())
			next[name] = old
			continue
		}
		changed = append(changed, fresh)
	}
	for name, old := range f.families {
		if next[name] == nil {
			gone = append(gone, old)
		}
	}
	f.families = next
	if len(changed) == 0 && len(gone) == 0 {
		if changedState {
			c.updateHealth()
		}
		return
	}
	for _, r := range c.rules {
		if !r.failed() && r.selection() == s {
			c.update(r, changed, gone, found.Ended)
		}
	}
	c.updateHealth()
}

// SetSeriesFailure sets the error of a selection's lookup. The series that are known stay.
func (c *Catalog) SetSeriesFailure(s Selection, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	f := c.discoveredBy(s)
	if f == nil || fmt.Sprint(f.err) == fmt.Sprint(err) {
		return // the state of all rules is not computed again for nothing
	}
	f.err = err
	c.updateHealth()
}

// discoveredBy returns what was discovered by a selection; nil if no rule uses it any longer.
func (c *Catalog) discoveredBy(s Selection) *discovered {
	if c.discovered[s] == nil && slices.Contains(c.selections(), s) {
		c.discovered[s] = &discovered{families: map[string]*family{}}
	}
	return c.discovered[s]
}
