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
	// maxPlaces is how many values of one label a group is filed under. A selector
	// that names more is filed under the label alone, so that a request of a
	// thousand terms does not take a thousand places.
	maxPlaces = 16
	// maxSelector is the longest selector of a watch, in bytes: about what fits a URL
	// on its way through other proxies, and memory that a watch may take.
	maxSelector = 32 << 10
	// maxMatched is how many terms a selection may have to be matched while others
	// wait for the same data point, and maxPlaceMatched how many all at one place may
	// have together. Selections beyond that hear of every point at their place, and
	// their watchers match it in their own time. kube-apiserver's watch cache has all
	// of them do so, with a goroutine for each.
	maxMatched, maxPlaceMatched = 8, 256
)

// place is where a group is filed: what an object must have for the group to be
// asked about it. Unset parts do not matter.
type place struct {
	kind      placeKind
	namespace string
	// name is an object's, or a label's.
	name, value string
}

type placeKind byte

const (
	placeNamespace placeKind = iota // every object of a namespace, or of all
	placeName                       // an object's name
	placeLabel                      // a label, whatever its value
	placePair                       // a label and its value
)

// filing is how the hub files the groups of a selection.
type filing struct {
	// id tells selections apart that do not mean the same.
	id     string
	places []place
	// terms is about how much there is to compare to match an object.
	terms int
}

// file returns the filing of a selection, or an error that tells the client that
// the selection is too long.
func file(s Selection) (filing, error) {
	id := s.id()
	if len(id) > maxSelector {
		return filing{}, apierrors.NewBadRequest(fmt.Sprintf(
			"the selectors of a watch may have %d bytes, not %d: watch more than you need, and select among the events", maxSelector, len(id)))
	}
	return filing{id: id, places: places(s), terms: s.terms()}, nil
}

// index finds the groups that a data point may concern. Each group is filed under
// the narrowest condition of its selection.
type index struct {
	places map[place]*shelf
	// labelled counts the places that are found by a label: without any, an
	// object's labels need not be looked at.
	labelled int
}

// shelf holds the groups of a place.
type shelf struct {
	groups []*group
	// matched are the terms of those that are matched when they are visited.
	matched int
}

func newIndex() *index { return &index{places: map[place]*shelf{}} }

func (p place) labelled() bool { return p.kind == placeLabel || p.kind == placePair }

func (x *index) add(g *group) {
	g.matched = g.terms <= maxMatched && !slices.ContainsFunc(g.places, func(p place) bool {
		return x.places[p] != nil && x.places[p].matched+g.terms > maxPlaceMatched
	})
	for _, p := range g.places {
		at := x.places[p]
		if at == nil {
			at = &shelf{}
			x.places[p] = at
			if p.labelled() {
				x.labelled++
			}
		}
		at.groups = append(at.groups, g)
		if g.matched {
			at.matched += g.terms
		}
	}
}

func (x *index) remove(g *group) {
	for _, p := range g.places {
		at := x.places[p]
		if at == nil {
			continue
		}
		i := slices.Index(at.groups, g)
		if i < 0 {
			continue
		}
		at.groups = slices.Delete(at.groups, i, i+1)
		if g.matched {
			at.matched -= g.terms
		}
		if len(at.groups) > 0 {
			continue
		}
		delete(x.places, p)
		if p.labelled() {
			x.labelled--
		}
	}
}

// each calls visit once with every group that wants the item, and may do so with
// groups that are not matched here.
func (x *index) each(item Item, visit func(*group)) {
	key := item.ItemKey()
	x.visit(place{kind: placeNamespace}, item, visit)
	x.visit(place{kind: placeName, name: key.Name}, item, visit)
	if key.Namespace != "" {
		x.visit(place{kind: placeNamespace, namespace: key.Namespace}, item, visit)
		x.visit(place{kind: placeName, namespace: key.Namespace, name: key.Name}, item, visit)
	}
	if x.labelled == 0 {
		return
	}
	for label, value := range item.ItemLabels() {
		x.visit(place{kind: placeLabel, name: label}, item, visit)
		x.visit(place{kind: placePair, name: label, value: value}, item, visit)
		if key.Namespace != "" {
			x.visit(place{kind: placeLabel, namespace: key.Namespace, name: label}, item, visit)
			x.visit(place{kind: placePair, namespace: key.Namespace, name: label, value: value}, item, visit)
		}
	}
}

func (x *index) visit(p place, item Item, visit func(*group)) {
	at := x.places[p]
	if at == nil {
		return
	}
	for _, g := range at.groups {
		if !g.matched || g.selection.matches(item) {
			visit(g)
		}
	}
}

// places are where a selection is filed. An object is found at one of them at
// most, since a label has one value.
func places(s Selection) []place {
	if name, exact := s.name(); exact {
		return []place{{kind: placeName, namespace: s.Namespace, name: name}}
	}
	everything := []place{{kind: placeNamespace, namespace: s.Namespace}}
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
		if !narrow(r) {
			continue
		}
		if values := breadth(r); best == nil || values < fewest {
			best, fewest = r, values
		}
	}
	if best == nil {
		return everything
	}
	if fewest > maxPlaces {
		return []place{{kind: placeLabel, namespace: s.Namespace, name: best.Key()}}
	}
	filed := make([]place, 0, fewest)
	for value := range best.Values() {
		filed = append(filed, place{kind: placePair, namespace: s.Namespace, name: best.Key(), value: value})
	}
	return filed
}

// narrow says whether only objects with the label can meet the requirement.
func narrow(r *labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In, selection.Exists,
		selection.GreaterThan, selection.LessThan:
		return true
	}
	return false
}

// breadth orders requirements by how much they are expected to match.
func breadth(r *labels.Requirement) int {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return len(r.ValuesUnsorted())
	}
	return maxPlaces + 1
}
