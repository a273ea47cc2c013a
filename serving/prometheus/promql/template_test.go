// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"
)

// Templates in which 0 and 1 in braces are the places of the values of the labels q and r; whether the values of
// a template yields what each expression does is tested by Prometheus' engine, with the rules.
func TestTemplate(t *testing.T) {
	type template struct {
		Text  string
		Added []bool
	}
	for name, test := range map[string]struct {
		expression string
		want       template // none if it is empty
	}{
		"grouped by it":                  {`sum by (q) (x{q="a"})`, template{`sum by (q) (x{q=~"{0}"})`, []bool{false}}},
		"not grouped":                    {`sum(x{q="a"})`, template{`sum by (q) (x{q=~"{0}"})`, []bool{true}}},
		"without it":                     {`sum without (q, b) (x{q="a"})`, template{`sum without (b) (x{q=~"{0}"})`, []bool{true}}},
		"without others":                 {`sum without (b) (x{q="a"})`, template{`sum without (b) (x{q=~"{0}"})`, []bool{false}}},
		"not aggregated":                 {`rate(x{q="a"}[1m])`, template{`rate(x{q=~"{0}"}[1m])`, []bool{false}}},
		"lost, and grouped by it":        {`sum by (q) (sum(x{q="a"}))`, template{`sum by (q) (sum by (q) (x{q=~"{0}"}))`, []bool{true}}},
		"two labels":                     {`sum by (r) (x{q="a",r="b.c"})`, template{`sum by (r, q) (x{q=~"{0}",r=~"{1}"})`, []bool{true, false}}},
		"a ratio":                        {`sum(x{q="a"}) / sum(y{q="a"})`, template{`sum by (q) (x{q=~"{0}"}) / sum by (q) (y{q=~"{0}"})`, []bool{true}}},
		"a ratio on another":             {`sum by (b) (x{q="a"}) / on (b) sum by (b) (y{q="a"})`, template{`sum by (b, q) (x{q=~"{0}"}) / on (b, q) sum by (b, q) (y{q=~"{0}"})`, []bool{true}}},
		"a quantile":                     {`histogram_quantile(0.9, sum by (le) (rate(x{q="a"}[5m])))`, template{`histogram_quantile(0.9, sum by (le, q) (rate(x{q=~"{0}"}[5m])))`, []bool{true}}},
		"a value as a regexp":            {`sum(x{q=~"a"})`, template{`sum by (q) (x{q=~"{0}"})`, []bool{true}}},
		"a constant condition":           {`sum(x{q="a"}) and on () up`, template{`sum by (q) (x{q=~"{0}"}) and on () up`, []bool{true}}},
		"another value":                  {`sum(x{q="a"}) / sum by (q) (y{q="b"})`, template{}},
		"a constant condition on labels": {`sum(x{q="a"}) and up`, template{}},
		"one side has lost it":           {`sum(x{q="a"}) / sum by (q) (y{q="a"})`, template{}},
		"or zero":                        {`sum(x{q="a"}) or vector(0)`, template{}},
		"the largest":                    {`topk(1, x{q="a"})`, template{}},
		"none of both labels":            {`sum(x{q="a"})`, template{}},
		"a pattern":                      {`sum(x{q=~"a|b"})`, template{}},
		"a zero byte":                    {`sum(x{q="a",z!="\x000"})`, template{}},
		"no PromQL":                      {`sum(x{q="a"}`, template{}},
	} {
		t.Run(name, func(t *testing.T) {
			equal := []Matcher{{"q", promlabels.MatchEqual, "a"}, {"r", promlabels.MatchEqual, "b.c"}}
			if n := len(test.want.Added); n > 0 {
				equal = equal[:n]
			} else if name != "none of both labels" {
				equal = equal[:1]
			}
			text, added, ok := Template(test.expression, equal)
			text = strings.NewReplacer("\x000", "{0}", "\x001", "{1}").Replace(text)
			if diff := cmp.Diff(test.want, template{text, added}); diff != "" || ok != (test.want.Text != "") {
				t.Errorf("it is %v that there is a template (-want +got):\n%s", ok, diff)
			}
		})
	}
	text, _, _ := Template(`sum(x{"app.kubernetes.io/name"="a"})`, []Matcher{{"app.kubernetes.io/name", promlabels.MatchEqual, "a"}})
	if want := "sum by (\"app.kubernetes.io/name\") (x{\"app.kubernetes.io/name\"=~\"\x000\"})"; text != want {
		t.Errorf("with a name that PromQL quotes: %q", text)
	}
}

func TestAlternative(t *testing.T) {
	for value, want := range map[string]string{"a-B_1": "a-B_1", "a.b": `a\\.b`, `a"|\`: `a\"\\|\\\\`, "ü": "ü"} {
		if got := Alternative(value); got != want {
			t.Errorf("%q is written %s", value, got)
			continue
		}
		e, err := Parse(`x{q=~"` + want + `"}`)
		if err != nil || !matches(selectors(e)[0].LabelMatchers[0], value) {
			t.Errorf("%s does not match %q: %v", want, value, err)
		}
	}
}
