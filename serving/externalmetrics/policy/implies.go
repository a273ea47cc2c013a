// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Implies says that whatever a query's selector selects, a policy's selects, too.
// It may say no where that is so (`>` and `<` are not reasoned about), but says yes
// only where it is certain.
//
// A label that is there with an empty value is what Prometheus does not tell from
// one that is not there: a query for the former is taken for one that may be
// answered with the latter.
func Implies(query, policy labels.Selector) bool {
	required, selectable := policy.Requirements()
	if !selectable {
		return false // the policy's selects nothing
	}
	asked := map[string]states{}
	if query != nil {
		requirements, selectable := query.Requirements()
		if !selectable {
			return true // the query's selects nothing
		}
		for i := range requirements {
			r := &requirements[i]
			before, ok := asked[r.Key()]
			if !ok {
				before = anything()
			}
			asked[r.Key()] = before.and(r)
		}
	}
	for _, s := range asked {
		if s.none() {
			return true // no series meets it
		}
	}
	// A requirement is about one label, and a query about each label by itself: so
	// the whole follows if each requirement follows from what is asked of its label.
	for i := range required {
		r := &required[i]
		s, ok := asked[r.Key()]
		if !ok {
			s = anything()
		}
		if !s.implies(r) {
			return false
		}
	}
	return true
}

// states are those that a label may be in: absent, or of one of some values.
type states struct {
	absent bool
	// listed says that values are all that it may have; otherwise they are those
	// that it may not have.
	listed bool
	values map[string]struct{}
}

func anything() states { return states{absent: true} }

// none says that there is no state left.
func (s states) none() bool { return !s.absent && s.listed && len(s.values) == 0 }

// and returns the states that meet a requirement, or more of them where it is one
// that is not reasoned about.
func (s states) and(r *labels.Requirement) states {
	values := valuesOf(r)
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		among := s.among(values)
		// An empty value may be no value, see Implies.
		return states{absent: s.absent && has(among, ""), listed: true, values: among}
	case selection.NotIn, selection.NotEquals:
		if s.listed {
			left := maps.Clone(s.values)
			maps.DeleteFunc(left, func(v string, _ struct{}) bool { return has(values, v) })
			return states{absent: s.absent, listed: true, values: left}
		}
		left := maps.Clone(values)
		maps.Copy(left, s.values)
		return states{absent: s.absent, values: left}
	case selection.DoesNotExist:
		return states{absent: s.absent, listed: true}
	case selection.Exists, selection.GreaterThan, selection.LessThan:
		return states{listed: s.listed, values: s.values}
	}
	return s
}

// among returns those of the values that are among the states.
func (s states) among(values map[string]struct{}) map[string]struct{} {
	among := maps.Clone(values)
	maps.DeleteFunc(among, func(v string, _ struct{}) bool { return has(s.values, v) != s.listed })
	return among
}

// implies says that every state meets a requirement.
func (s states) implies(r *labels.Requirement) bool {
	values := valuesOf(r)
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		if s.absent || !s.listed {
			return false
		}
		for v := range s.values {
			if !has(values, v) {
				return false
			}
		}
		return true
	case selection.NotIn, selection.NotEquals:
		for v := range values {
			if has(s.values, v) == s.listed {
				return false
			}
		}
		return true
	case selection.Exists:
		return !s.absent
	case selection.DoesNotExist:
		return s.listed && len(s.values) == 0
	}
	return false
}

func valuesOf(r *labels.Requirement) map[string]struct{} {
	values := map[string]struct{}{}
	for _, v := range r.ValuesUnsorted() {
		values[v] = struct{}{}
	}
	return values
}

func has(values map[string]struct{}, v string) bool {
	_, ok := values[v]
	return ok
}
