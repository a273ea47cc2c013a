// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		one, two string
		want     Difference
	}{
		"the same":                   {`sum(a{x=~"b"})`, `sum(a{x=~"b"})`, Difference{}},
		"the same, written apart":    {`sum by (y) (a{x=~"b"})`, `sum(a{x=~"b"}) by (y)`, Difference{}},
		"a regular expression":       {`sum(a{x=~"b"})`, `sum(a{x=~"c"})`, Difference{Regexps: true}},
		"one that must not match":    {`sum(a{x!~"b"})`, `sum(a{x!~"c"})`, Difference{Regexps: true}},
		"the second of two":          {`a{x=~"b"} / c{x=~"d"}`, `a{x=~"b"} / c{x=~"e"}`, Difference{Regexps: true}},
		"a value":                    {`sum(a{x="b"})`, `sum(a{x="c"})`, Difference{Others: true}},
		"both":                       {`a{x=~"b",y="b"}`, `a{x=~"c",y="c"}`, Difference{Regexps: true, Others: true}},
		"a number":                   {`quantile(0.5, a)`, `quantile(0.9, a)`, Difference{Others: true}},
		"a text":                     {`label_replace(a, "x", "b", "y", "d")`, `label_replace(a, "x", "c", "y", "d")`, Difference{Others: true}},
		"what replaces labels":       {`label_replace(a, "x", "1", "y", "b")`, `label_replace(a, "x", "1", "y", "c")`, Difference{Regexps: true}},
		"within another call":        {`sum(rate(label_replace(a, "x", "b", "y", "(b)")[5m:1m]))`, `sum(rate(label_replace(a, "x", "c", "y", "(c)")[5m:1m]))`, Difference{Regexps: true, Others: true}},
		"what joins labels":          {`label_join(a, "x", "b", "y")`, `label_join(a, "x", "c", "y")`, Difference{Others: true}},
		"another kind of matcher":    {`a{x=~"b"}`, `a{x="b"}`, Difference{Regexps: true, Others: true}},
		"one in a range and another": {`rate(a{x=~"b"}[5m])`, `rate(a{x=~"c"}[6m])`, Difference{Regexps: true, Others: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Compare(c.one, c.two)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
	for _, c := range [][2]string{{"a", "a{"}, {"a{", "a"}} {
		if _, err := Compare(c[0], c[1]); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
}
