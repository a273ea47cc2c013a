// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"
)

func TestPlainName(t *testing.T) {
	for name, want := range map[string]bool{
		"up": true, "job:requests:rate5m": true, ":requests": true, "rate": true, "_": true,
		"": false, "http.server.requests": false, "x{} or y": false, "x\n": false, "ä": false,
		"by": false, "sum": false, "offset": false, "Inf": false, "nan": false, "5m": false,
	} {
		if got := PlainName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestSameButName(t *testing.T) {
	for name, test := range map[string]struct {
		one, two, name string
		want           bool
	}{
		"a keyword":              {`sum(rate(sample{a="b"}[5m])) by (c)`, `sum(rate(by{a="b"}[5m])) by (c)`, "by", true},
		"a keyword as a name":    {`{__name__="sample",a="b"}`, `{__name__="sum",a="b"}`, "sum", true},
		"a keyword as a value":   {`x{a="sample"}`, `x{a="by"}`, "by", true},
		"a number":               {`sample * 2`, `Inf * 2`, "Inf", false},
		"a function":             {`sample`, `sum(x)`, "sum", false},
		"not a name":             {`sum(sample)`, `sum(x or y)`, "x or y", false},
		"a name with a dot":      {`sum({"sample"})`, `sum({"a.b"})`, "a.b", false},
		"a name that is not put": {`sum(x)`, `sum(x)`, "a.b", true},
		"not PromQL":             {`sum(sample default 0)`, `sum(by default 0)`, "by", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SameButName(test.one, "sample", test.two, test.name); got != test.want {
				t.Errorf("it is %v", got)
			}
		})
	}
}

func TestFindMatchers(t *testing.T) {
	m := []Matcher{Equal("a", "b"), {Label: "c", Type: promlabels.MatchNotEqual, Value: "d"}}
	for expression, want := range map[string][]Occurrence{
		`x{a="b",c!="d"}`:                 {InAll, InAll},
		`x{c!="d",a="b"} / y{a="b"}`:      {InAll, InSome},
		`x{c=~"d"}`:                       {Absent, Replaced},
		`x{a="b"} or y{a="z"}`:            {InSome, Absent},
		`time()`:                          {InAll, InAll},
		`x{a="b",c=~"d"} default 0`:       {InSome, Replaced},
		`median_over_time(x{c!="d"}[5m])`: {Replaced, InSome},
	} {
		if diff := cmp.Diff(want, FindMatchers(expression, m)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", expression, diff)
		}
	}
}

// What another server may accept is distinguished from what none does.
func TestSyntaxError(t *testing.T) {
	for expression, want := range map[string]bool{
		`holt_winters(x[5m], 0.5, 0.5)`: true, `sum(rate(x)) by (pod)`: true, `x default 0`: true, `sum(x{a="("} foo)`: true,
		"x default 0 # (": true, `x{a="\""} default ')'`: true,
		`sum(x`: false, `sum(x))`: false, `sum(x]`: false, `x{a="b}`: false, "x{a=`b}": false, `x[5m]`: false, "sum( # )": false,
	} {
		_, err := Parse(expression)
		if unknown := (*SyntaxError)(nil); err == nil || errors.As(err, &unknown) != want {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

func TestWindow(t *testing.T) {
	tests := map[string]time.Duration{
		`x`:                                 0,
		`1`:                                 0,
		`rate(x[5m])`:                       5 * time.Minute,
		`rate(x[5m]) / rate(y[1h30m])`:      90 * time.Minute,
		`max_over_time(rate(x[5m])[1h:1m])`: time.Hour,
		`max_over_time(rate(x[2h])[1h:1m])`: 2 * time.Hour,
		`rate(x[1d] offset 1w)`:             24 * time.Hour,
		`sum by (pod) (rate(x{a=~"b|c"}[2m])) > 3`: 2 * time.Minute,
	}
	for expression, want := range tests {
		e, err := Parse(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := Window(e); got != want {
			t.Errorf("%s: window %s, want %s", expression, got, want)
		}
	}
}
