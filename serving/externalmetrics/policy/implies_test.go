// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

func parse(t *testing.T, selector string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(selector)
	if err != nil {
		t.Fatalf("parse %q: %v", selector, err)
	}
	return s
}

func TestImplies(t *testing.T) {
	tests := map[string]struct {
		query, policy string
		want          bool
	}{
		"nothing asked, nothing required":          {"", "", true},
		"nothing asked":                            {"", "queue=a", false},
		"nothing required":                         {"queue=a", "", true},
		"the same":                                 {"queue=a", "queue=a", true},
		"another value":                            {"queue=b", "queue=a", false},
		"another label":                            {"topic=a", "queue=a", false},
		"more than required":                       {"queue=a,region=eu", "queue=a", true},
		"less than required":                       {"queue=a", "queue=a,region=eu", false},
		"one of the allowed":                       {"queue=a", "queue in (a,b)", true},
		"some of the allowed":                      {"queue in (a,b)", "queue in (a,b,c)", true},
		"more than the allowed":                    {"queue in (a,b,c)", "queue in (a,b)", false},
		"two sets that meet in what is allowed":    {"queue in (a,b),queue in (b,c)", "queue=b", true},
		"a set without what is not allowed":        {"queue in (a,b),queue!=a", "queue=b", true},
		"there, with any value":                    {"queue", "queue in (a,b)", false},
		"a value is there":                         {"queue=a", "queue", true},
		"not one value is not there":               {"queue!=a", "queue", false},
		"not one value, and there":                 {"queue!=a,queue", "queue", true},
		"not there":                                {"!queue", "queue", false},
		"not there is not any value":               {"!queue", "queue!=a", true},
		"not there is not there":                   {"!queue", "!queue", true},
		"a value is not: not there":                {"queue=a", "!queue", false},
		"not one value is not: not there":          {"queue!=a", "!queue", false},
		"another value is not the forbidden one":   {"queue=b", "queue!=a", true},
		"the forbidden one":                        {"queue=a", "queue!=a", false},
		"one of them forbidden":                    {"queue in (a,b)", "queue notin (a,c)", false},
		"none of them forbidden":                   {"queue in (b,d)", "queue notin (a,c)", true},
		"more forbidden than needs be":             {"queue notin (a,b,c)", "queue notin (a,c)", true},
		"less forbidden than must be":              {"queue notin (a)", "queue notin (a,c)", false},
		"forbidden in two steps":                   {"queue!=a,queue!=c", "queue notin (a,c)", true},
		"nothing can be both":                      {"queue=a,queue=b", "region=eu", true},
		"nothing is there and not there":           {"queue,!queue", "region=eu", true},
		"greater is there":                         {"weight>5", "weight", true},
		"greater is not reasoned about":            {"weight>5", "weight!=3", false},
		"an empty value may be none":               {"queue=", "queue", false},
		"an empty value may be none, also in sets": {"queue in (,a)", "queue in (,a)", false},
		"an empty value that must be there":        {"queue=,queue", "queue", true},
		"an empty value is not another":            {"queue=", "queue!=a", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Implies(parse(t, tc.query), parse(t, tc.policy)); got != tc.want {
				t.Errorf("Implies(%q, %q) = %t, want %t", tc.query, tc.policy, got, tc.want)
			}
		})
	}
	if !Implies(labels.Nothing(), parse(t, "queue=a")) {
		t.Error("a query that selects nothing is denied")
	}
	if Implies(parse(t, "queue=a"), labels.Nothing()) {
		t.Error("a policy that selects nothing lets a query pass")
	}
	if Implies(nil, parse(t, "queue")) || !Implies(nil, labels.Everything()) {
		t.Error("a query without a selector is not for everything")
	}
}

// The universe of the property test: every series with up to three labels, each
// absent or of one of these values.
var (
	universeLabels = []string{"a", "b", "c"}
	universeValues = []string{"1", "2", "3"}
)

func universe() []labels.Set {
	sets := []labels.Set{{}}
	for _, label := range universeLabels {
		for _, s := range sets[:len(sets):len(sets)] {
			for _, value := range universeValues {
				larger := labels.Set{label: value}
				for k, v := range s {
					larger[k] = v
				}
				sets = append(sets, larger)
			}
		}
	}
	return sets
}

func randomSelector(t *testing.T, random *rand.Rand, values []string) labels.Selector {
	selector := labels.NewSelector()
	for range random.IntN(5) {
		operators := []selection.Operator{
			selection.In, selection.NotIn, selection.Equals, selection.DoubleEquals, selection.NotEquals, selection.Exists, selection.DoesNotExist,
			selection.GreaterThan, selection.LessThan,
		}
		operator := operators[random.IntN(len(operators))]
		var of []string
		switch operator {
		case selection.In, selection.NotIn:
			for _, v := range values {
				if random.IntN(2) == 0 {
					of = append(of, v)
				}
			}
			if len(of) == 0 {
				of = []string{values[0]}
			}
		case selection.Exists, selection.DoesNotExist:
		case selection.GreaterThan, selection.LessThan:
			of = []string{universeValues[random.IntN(len(universeValues))]}
		default:
			of = []string{values[random.IntN(len(values))]}
		}
		r, err := labels.NewRequirement(universeLabels[random.IntN(len(universeLabels))], operator, of)
		if err != nil {
			t.Fatalf("%s %v: %v", operator, of, err)
		}
		selector = selector.Add(*r)
	}
	return selector
}

// TestImpliesAgainstBruteForce: a yes is never wrong, and a no is only ever wrong
// where orders are asked for, which is not reasoned about.
func TestImpliesAgainstBruteForce(t *testing.T) {
	series := universe()
	random := rand.New(rand.NewPCG(1, 2))
	yes := 0
	for range 50000 {
		// One value is in no series: there are always more values than a universe has.
		query, policy := randomSelector(t, random, universeValues), randomSelector(t, random, universeValues)
		holds := true
		for _, s := range series {
			if query.Matches(s) && !policy.Matches(s) {
				holds = false
				break
			}
		}
		got := Implies(query, policy)
		if got {
			yes++
		}
		if got && !holds {
			t.Fatalf("Implies(%q, %q), but there are series of the one that are not of the other", query, policy)
		}
		if !got && holds && !ordered(query) && !ordered(policy) && !beyond(query, policy) {
			t.Fatalf("not Implies(%q, %q), although every series of the one is of the other", query, policy)
		}
	}
	if yes < 1000 {
		t.Errorf("only %d of the pairs imply: the test tells little", yes)
	}
}

func ordered(s labels.Selector) bool {
	requirements, _ := s.Requirements()
	for i := range requirements {
		if o := requirements[i].Operator(); o == selection.GreaterThan || o == selection.LessThan {
			return true
		}
	}
	return false
}

// beyond says whether a series with a value that the universe does not have is of
// the query and not of the policy: then the no is right.
func beyond(query, policy labels.Selector) bool {
	for _, s := range universe() {
		for mask := range 1 << len(universeLabels) {
			larger := labels.Set{}
			for k, v := range s {
				larger[k] = v
			}
			for i, label := range universeLabels {
				if mask&(1<<i) != 0 {
					larger[label] = "another"
				}
			}
			if query.Matches(larger) && !policy.Matches(larger) {
				return true
			}
		}
	}
	return false
}

// selects says whether a query's selector selects series with these labels: a missing one has the empty
// value, as in Prometheus.
func selects(s labels.Selector, of labels.Set) bool {
	requirements, _ := s.Requirements()
	for i := range requirements {
		r := &requirements[i]
		matched := r.Matches(labels.Set{r.Key(): of[r.Key()]})
		switch r.Operator() {
		case selection.Exists:
			matched = of[r.Key()] != ""
		case selection.DoesNotExist:
			matched = !of.Has(r.Key())
		}
		if !matched {
			return false
		}
	}
	return true
}

// FuzzImplies: whatever selectors clients and administrators write, a yes holds for
// a series of one label.
func FuzzImplies(f *testing.F) {
	for _, seed := range [][4]string{
		{"queue=a", "queue in (a,b)", "queue", "a"}, {"queue!=a,queue", "queue", "queue", "c"}, {"queue=", "queue", "queue", ""},
		{"!queue", "queue notin (a)", "queue", "b"}, {"!queue", "queue!=", "queue", ""}, {"queue!=", "queue!=", "queue", "a"}, {"weight>5,weight<7", "weight", "weight", "6"}, {"a in (,b)", "a in (b,)", "a", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, query, policy, key, value string) {
		q, err := labels.Parse(query)
		if err != nil {
			return
		}
		p, err := labels.Parse(policy)
		if err != nil {
			return
		}
		if !Implies(q, p) {
			return
		}
		for _, s := range []labels.Set{{}, {key: value}, {key: ""}} {
			if selects(q, s) && !p.Matches(s) {
				t.Errorf("Implies(%q, %q), but %v is of the one and not of the other", query, policy, s)
			}
		}
	})
}
