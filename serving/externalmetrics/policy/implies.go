// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
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
			asked[r.Key()] = asked[r.Key()].and(r)
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
		if r := &required[i]; !asked[r.Key()].implies(r) {
			return false
		}
	}
	return true
}

// states are those that a label may be in: absent, or of one of some values. The zero
// value is all of them.
type states struct {
	// present says that the label is not absent.
	present bool
	// listed says that values are all that it may have; otherwise they are those
	// that it may not have.
	listed bool
	values sets.Set[string]
}

// none says that there is no state left.
func (s states) none() bool { return s.present && s.listed && len(s.values) == 0 }

// and returns the states that meet a requirement, or more of them where it is one
// that is not reasoned about.
func (s states) and(r *labels.Requirement) states {
	values := sets.New(r.ValuesUnsorted()...)
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		among := s.among(values)
		// An empty value may be no value, see Implies.
		return states{present: s.present || !among.Has(""), listed: true, values: among}
	case selection.NotIn, selection.NotEquals:
		if s.listed {
			return states{present: s.present, listed: true, values: s.values.Difference(values)}
		}
		return states{present: s.present, values: s.values.Union(values)}
	case selection.DoesNotExist:
		return states{present: s.present, listed: true}
	case selection.Exists, selection.GreaterThan, selection.LessThan:
		return states{present: true, listed: s.listed, values: s.values}
	}
	return s
}

// among returns those of the values that are among the states.
func (s states) among(values sets.Set[string]) sets.Set[string] {
	if s.listed {
		return values.Intersection(s.values)
	}
	return values.Difference(s.values)
}

// implies says that every state meets a requirement.
func (s states) implies(r *labels.Requirement) bool {
	values := sets.New(r.ValuesUnsorted()...)
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		return s.present && s.listed && values.IsSuperset(s.values)
	case selection.NotIn, selection.NotEquals:
		return len(s.among(values)) == 0
	case selection.Exists:
		return s.present
	case selection.DoesNotExist:
		return s.listed && len(s.values) == 0
	}
	return false
}
