// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

const (
	// maxKeys is the most buckets that a group is in. A selector with more values of a label is
	// indexed by the label alone, so that a request with a thousand values does not take a
	// thousand buckets.
	maxKeys = 16
	// maxSelector is the longest selector of a watch, in bytes: about what fits a URL on its way
	// through proxies, and memory that a watch may take.
	maxSelector = 32 << 10
	// maxTerms and maxBucketTerms bound the terms of a selection, and of all in a bucket, that
	// the publisher matches while others wait for the point. Beyond that it writes every point of
	// the bucket to the group's log, and the watchers match. In kube-apiserver's watch cache all
	// watchers match, each in its own goroutine.
	maxTerms, maxBucketTerms = 8, 256
)

// bucketKey is a condition that an object must meet for the groups in the bucket. Unused fields
// are empty.
type bucketKey struct {
	kind      bucketKind
	namespace string
	// name of an object or of a label.
	name, value string
}

type bucketKind byte

const (
	inNamespace    bucketKind = iota // every object of a namespace, or of all
	withName                         // an object's name
	withLabel                        // a label, whatever its value
	withLabelValue                   // a label and its value
)

func (k bucketKey) byLabel() bool { return k.kind == withLabel || k.kind == withLabelValue }

// indexEntry says where a selection is in the index.
type indexEntry struct {
	// id is equal for equal selections only.
	id   string
	keys []bucketKey
	// terms estimates the comparisons that matching an object takes.
	terms int
}

// newIndexEntry returns the entry of a selection, or a BadRequest if the selection is too long.
func newIndexEntry(s Selection) (indexEntry, error) {
	id := s.id()
	if len(id) > maxSelector {
		return indexEntry{}, apierrors.NewBadRequest(fmt.Sprintf(
			"the selectors of a watch may have %d bytes, not %d: watch more than you need, and select among the events", maxSelector, len(id)))
	}
	return indexEntry{id: id, keys: bucketKeys(s), terms: s.terms()}, nil
}

// index finds the groups that may select a data point. Each group is indexed by the narrowest
// condition of its selection.
type index struct {
	buckets map[bucketKey]*bucket
	// byLabel counts the buckets of labels: without any, an object's labels are not looked up.
	byLabel int
}

type bucket struct {
	groups []*group
	// terms of the prefiltered groups.
	terms int
}

func newIndex() *index { return &index{buckets: map[bucketKey]*bucket{}} }

func (x *index) add(g *group) {
	g.prefiltered = g.terms <= maxTerms && !slices.ContainsFunc(g.keys, func(k bucketKey) bool {
		return x.buckets[k] != nil && x.buckets[k].terms+g.terms > maxBucketTerms
	})
	for _, k := range g.keys {
		b := x.buckets[k]
		if b == nil {
			b = &bucket{}
			x.buckets[k] = b
			if k.byLabel() {
				x.byLabel++
			}
		}
		b.groups = append(b.groups, g)
		if g.prefiltered {
			b.terms += g.terms
		}
	}
}

func (x *index) remove(g *group) {
	for _, k := range g.keys {
		b := x.buckets[k]
		if b == nil {
			continue
		}
		i := slices.Index(b.groups, g)
		if i < 0 {
			continue
		}
		b.groups = slices.Delete(b.groups, i, i+1)
		if g.prefiltered {
			b.terms -= g.terms
		}
		if len(b.groups) > 0 {
			continue
		}
		delete(x.buckets, k)
		if k.byLabel() {
			x.byLabel--
		}
	}
}

// each calls f once for every group that selects the item, and for groups that are not
// prefiltered and may select it.
func (x *index) each(item Item, f func(*group)) {
	key := item.ItemKey()
	x.eachInBucket(bucketKey{kind: inNamespace}, item, f)
	x.eachInBucket(bucketKey{kind: withName, name: key.Name}, item, f)
	if key.Namespace != "" {
		x.eachInBucket(bucketKey{kind: inNamespace, namespace: key.Namespace}, item, f)
		x.eachInBucket(bucketKey{kind: withName, namespace: key.Namespace, name: key.Name}, item, f)
	}
	if x.byLabel == 0 {
		return
	}
	for label, value := range item.ItemLabels() {
		x.eachInBucket(bucketKey{kind: withLabel, name: label}, item, f)
		x.eachInBucket(bucketKey{kind: withLabelValue, name: label, value: value}, item, f)
		if key.Namespace != "" {
			x.eachInBucket(bucketKey{kind: withLabel, namespace: key.Namespace, name: label}, item, f)
			x.eachInBucket(bucketKey{kind: withLabelValue, namespace: key.Namespace, name: label, value: value}, item, f)
		}
	}
}

// eachInBucket is each for the groups of one bucket.
func (x *index) eachInBucket(k bucketKey, item Item, f func(*group)) {
	b := x.buckets[k]
	if b == nil {
		return
	}
	for _, g := range b.groups {
		if !g.prefiltered || g.selection.matches(item) {
			f(g)
		}
	}
}

// bucketKeys returns the buckets of a selection. An object is in at most one of them, since a
// label has one value.
func bucketKeys(s Selection) []bucketKey {
	if name, exact := s.Name(); exact {
		return []bucketKey{{kind: withName, namespace: s.Namespace, name: name}}
	}
	everything := []bucketKey{{kind: inNamespace, namespace: s.Namespace}}
	if s.Labels == nil {
		return everything
	}
	requirements, selectable := s.Labels.Requirements()
	if !selectable {
		return nil
	}
	var best *labels.Requirement
	fewest := 0
	for i := range requirements {
		r := &requirements[i]
		if !requiresLabel(r) {
			continue
		}
		if values := valueCount(r); best == nil || values < fewest {
			best, fewest = r, values
		}
	}
	if best == nil {
		return everything
	}
	if fewest > maxKeys {
		return []bucketKey{{kind: withLabel, namespace: s.Namespace, name: best.Key()}}
	}
	keys := make([]bucketKey, 0, fewest)
	for value := range best.Values() {
		keys = append(keys, bucketKey{kind: withLabelValue, namespace: s.Namespace, name: best.Key(), value: value})
	}
	return keys
}

// requiresLabel reports whether only objects with the label can meet the requirement.
func requiresLabel(r *labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In, selection.Exists,
		selection.GreaterThan, selection.LessThan:
		return true
	}
	return false
}

// valueCount returns how many values meet the requirement, or more than maxKeys if any may.
func valueCount(r *labels.Requirement) int {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return len(r.ValuesUnsorted())
	}
	return maxKeys + 1
}
