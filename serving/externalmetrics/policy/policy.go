// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// Query is what is decided about: who reads what, from where.
type Query struct {
	// Namespace is query.AllNamespaces for all, to which every policy applies.
	Namespace string
	// User may be nil where nobody is known.
	User user.Info
	// Metric is the name, escapes resolved.
	Metric string
	// Selector of the query; nil selects everything.
	Selector labels.Selector
}

// Denial is why a query may not be answered.
type Denial struct {
	// Policy is the name of the ExternalMetricsPolicy, and Rule the index of the rule
	// within it.
	Policy string
	Rule   int
	// Reason says what is not allowed, and what to do.
	Reason string
}

// Error implements error.
func (d *Denial) Error() string {
	return fmt.Sprintf("ExternalMetricsPolicy %q (spec.rules[%d]) %s", d.Policy, d.Rule, d.Reason)
}

// Set is all policies. It is immutable; the zero value allows everything.
type Set struct{ policies []*policy }

// policy is an ExternalMetricsPolicy that can be asked.
type policy struct {
	name string
	// namespaces is empty for all; users and groups both are for everybody.
	namespaces, users, groups sets.Set[string]
	// everybody it is, too, where the subjects cannot be understood.
	everybody bool
	rules     []rule
}

// rule is one of a policy. What of it does not compile is in broken; it then denies
// what it may have been meant for.
type rule struct {
	// metric matches whole names, and anyCase whatever their case; nil is for every name.
	metric, anyCase *regexp.Regexp
	// selector is nil for a denial.
	selector labels.Selector
	broken   error
}

// Compile makes a set of the policies of a cluster. A policy that cannot be used as
// a whole fails closed: each rule that does not compile denies whatever it may have
// been meant for, and the rules before it go on to decide what they match. The error
// tells of all of them, and comes with the set.
func Compile(objects []v1alpha1.ExternalMetricsPolicy) (*Set, error) {
	s := &Set{}
	var errs []error
	for i := range objects {
		p, err := compile(&objects[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("ExternalMetricsPolicy %q: %w", objects[i].Name, err))
		}
		s.policies = append(s.policies, p)
	}
	// Of several denials the same one is told each time.
	slices.SortFunc(s.policies, func(a, b *policy) int { return strings.Compare(a.name, b.name) })
	return s, errors.Join(errs...)
}

func compile(object *v1alpha1.ExternalMetricsPolicy) (*policy, error) {
	spec := &object.Spec
	p := &policy{
		name: object.Name, namespaces: sets.New(spec.Namespaces...), users: sets.New[string](), groups: sets.New[string](),
		everybody: len(spec.Subjects) == 0,
	}
	var errs []error
	for i, subject := range spec.Subjects {
		switch subject.Kind {
		case v1alpha1.PolicySubjectUser:
			p.users.Insert(subject.Name)
		case v1alpha1.PolicySubjectGroup:
			p.groups.Insert(subject.Name)
		default:
			errs = append(errs, fmt.Errorf("spec.subjects[%d].kind is %q, which is neither %s nor %s: the policy applies to everybody", i, subject.Kind, v1alpha1.PolicySubjectUser, v1alpha1.PolicySubjectGroup))
			p.everybody = true
		}
	}
	for i := range spec.Rules {
		r := compileRule(&spec.Rules[i])
		if r.broken != nil {
			errs = append(errs, fmt.Errorf("spec.rules[%d]: %w", i, r.broken))
		}
		p.rules = append(p.rules, r)
	}
	return p, errors.Join(errs...)
}

func compileRule(given *v1alpha1.ExternalMetricsPolicyRule) rule {
	metric, selector, err := given.Compile()
	r := rule{metric: metric, selector: selector, broken: err}
	if metric != nil {
		if r.anyCase, err = regexp.Compile("(?i)" + given.Metric); err != nil {
			r.broken = fmt.Errorf("metric is no regular expression without regard to case: %w", err)
			return r
		}
		r.anyCase.Longest()
	}
	return r
}

// Check returns nil where every policy that applies lets a query pass, otherwise
// the first, by name, that does not.
func (s *Set) Check(q Query) *Denial {
	for _, p := range s.policies {
		if !p.applies(q) {
			continue
		}
		if d := p.check(q); d != nil {
			return d
		}
	}
	return nil
}

func (p *policy) applies(q Query) bool {
	if len(p.namespaces) > 0 && q.Namespace != query.AllNamespaces && !p.namespaces.Has(q.Namespace) {
		return false
	}
	return p.everybody || q.User == nil || p.users.Has(q.User.GetName()) || p.groups.HasAny(q.User.GetGroups()...)
}

// check lets the first rule decide that matches the metric's name. A rule that matches it only in
// another case may deny, since clients of client-go ask in lower case, but allows no other metric.
func (p *policy) check(q Query) *Denial {
	for i := range p.rules {
		r := &p.rules[i]
		matches := v1alpha1.MatchesWhole(r.metric, q.Metric)
		// The letter İ has a lower case that (?i) does not count as one.
		if !matches && !v1alpha1.MatchesWhole(r.anyCase, q.Metric) && !v1alpha1.MatchesWhole(r.anyCase, strings.ToLower(q.Metric)) {
			continue
		}
		if reason := r.check(q); reason != "" {
			return &Denial{Policy: p.name, Rule: i, Reason: reason}
		}
		if matches {
			return nil
		}
	}
	return nil
}

// check returns why the rule forbids a query whose metric it matches.
func (r *rule) check(q Query) string {
	switch {
	case r.broken != nil:
		return fmt.Sprintf("cannot be used, and denies what it may have been meant for: %v; an administrator can mend it", r.broken)
	case r.selector == nil:
		return fmt.Sprintf("denies the metric in namespace %q; an administrator can change the policy", q.Namespace)
	case Implies(q.Selector, r.selector):
		return ""
	}
	return fmt.Sprintf("allows only queries that select a subset of %q: add that to the query's label selector", r.selector)
}
