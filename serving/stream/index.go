// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// maxTerms is how many values of one label a group is filed under. A selector
// that names more is filed under the label alone, so that a request of a
// thousand terms does not take a thousand places.
const maxTerms = 16

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

// index finds the groups that a data point may concern. Each group is filed under
// the narrowest condition of its selection.
type index struct {
	places map[place][]*group
	// labelled counts the places that are found by a label: without any, an
	// object's labels need not be looked at.
	labelled int
}

func newIndex() *index { return &index{places: map[place][]*group{}} }

func (p place) labelled() bool { return p.kind == placeLabel || p.kind == placePair }

func (x *index) add(g *group) {
	for _, p := range places(g.selection) {
		if p.labelled() && len(x.places[p]) == 0 {
			x.labelled++
		}
		x.places[p] = append(x.places[p], g)
	}
}

func (x *index) remove(g *group) {
	for _, p := range places(g.selection) {
		groups := x.places[p]
		i := slices.Index(groups, g)
		if i < 0 {
			continue
		}
		if groups = slices.Delete(groups, i, i+1); len(groups) > 0 {
			x.places[p] = groups
			continue
		}
		delete(x.places, p)
		if p.labelled() {
			x.labelled--
		}
	}
}

// each calls visit with every group that wants the item, once.
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
	for _, g := range x.places[p] {
		if g.selection.matches(item) {
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
	for i := range requirements {
		if r := &requirements[i]; narrow(r) && (best == nil || terms(r) < terms(best)) {
			best = r
		}
	}
	if best == nil {
		return everything
	}
	if terms(best) > maxTerms {
		return []place{{kind: placeLabel, namespace: s.Namespace, name: best.Key()}}
	}
	filed := make([]place, 0, terms(best))
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

// terms orders requirements by how much they are expected to match.
func terms(r *labels.Requirement) int {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return r.Values().Len()
	}
	return maxTerms + 1
}
