// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"sync/atomic"

	"github.com/metricsbackend/metrics-backend-operator/serving/prometheus/series"
)

// family is all series of one name that a selection found.
type family struct {
	name string
	// labels that some of the series have, and shared, which all of them have, in order.
	labels, shared []string
	// count of the series, renewed without a change of the family.
	count *atomic.Int64
}

// found is what is known of a selection.
type found struct {
	families map[string]*family
	last     []series.Series
	// known says that the source has answered once.
	known bool
	// cut says that there are more, which are not known.
	cut bool
	err error
}

// sharedFirst orders labels: those that all series have come before the others. Whoever is
// scraped chooses labels of its series, and shall not, by one more, choose which one tells
// the namespace, or the object, of everybody else's. (By one less it may still take a label
// out of these: then others' values are missing, and not of somebody else.)
func (f *family) sharedFirst(labels []string) []string {
	ordered := slices.Clone(labels)
	slices.SortStableFunc(ordered, before(func(label string) bool {
		_, shared := slices.BinarySearch(f.shared, label)
		return shared
	}))
	return ordered
}

// before compares those for which something holds as less than the others.
func before(holds func(string) bool) func(a, b string) int {
	return func(a, b string) int {
		switch first := holds(a); {
		case first == holds(b):
			return 0
		case first:
			return -1
		default:
			return 1
		}
	}
}

// families puts series of one name together.
func families(found []series.Series) map[string]*family {
	all := make(map[string]*family, len(found))
	for i := range found {
		s := &found[i]
		if s.Name == "" {
			continue
		}
		f := all[s.Name]
		if f == nil {
			f = &family{name: s.Name, labels: s.Labels, shared: s.Labels, count: &atomic.Int64{}}
			all[s.Name] = f
		} else if !slices.Equal(f.labels, s.Labels) {
			f.labels = slices.Compact(slices.Sorted(slices.Values(slices.Concat(f.labels, s.Labels))))
			f.shared = slices.DeleteFunc(slices.Clone(f.shared), func(label string) bool { return !s.Has(label) })
		}
		f.count.Add(int64(s.Count))
	}
	return all
}

// SetFound tells what discovery knows of a selection's series.
func (c *Catalogue) SetFound(s Selection, f series.Found) {
	switch {
	case !f.Time.IsZero():
		c.setSeries(s, f.Series, f.Truncated, f.Err)
	case f.Err != nil:
		c.SetSeriesFailure(s, f.Err)
	}
}

// SetSeries tells of all series that a selection has now, of which it keeps the slice.
// It costs what changed.
func (c *Catalogue) SetSeries(s Selection, all []series.Series) { c.setSeries(s, all, false, nil) }

// setSeries takes series, and why they could not be learnt again since.
func (c *Catalogue) setSeries(s Selection, all []series.Series, cut bool, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	f := c.found[s]
	if f == nil {
		if !slices.Contains(c.selections(), s) {
			return // no rule asks for it any more
		}
		f = &found{families: map[string]*family{}}
		c.found[s] = f
	}
	news := !f.known || !sameError(f.err, err) || f.cut != cut
	// Discovery keeps the slice while nothing is new.
	same := f.known && len(all) == len(f.last) && (len(all) == 0 || &all[0] == &f.last[0])
	if same && !news {
		return
	}
	f.last = all
	next := families(all)
	f.known, f.err, f.cut = true, err, cut
	var changed, gone []*family
	for name, fresh := range next {
		old := f.families[name]
		if old != nil && slices.Equal(old.labels, fresh.labels) && slices.Equal(old.shared, fresh.shared) {
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
		if news {
			c.judge()
		}
		return
	}
	for _, r := range c.rules {
		if !r.failed() && r.selection() == s {
			c.update(r, changed, gone)
		}
	}
	c.judge()
}

// SetSeriesFailure tells why a selection's series could not be learnt. Those that are
// known stay.
func (c *Catalogue) SetSeriesFailure(s Selection, err error) {
	c.changing.Lock()
	defer c.changing.Unlock()
	f := c.found[s]
	if f == nil {
		if !slices.Contains(c.selections(), s) {
			return
		}
		f = &found{families: map[string]*family{}}
		c.found[s] = f
	}
	if sameError(f.err, err) {
		return // all rules are judged for what is news, and they are told anew with each spec
	}
	f.err = err
	c.judge()
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}
