// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"
	"testing"
)

func TestOmitEmptyItems(t *testing.T) {
	for name, test := range map[string]struct{ expression, want string }{
		"matchers first":           {`sum(x{, queue=~"a.*"})`, `sum(x{ queue=~"a.*"})`},
		"matchers in between":      {`x{a="1", , b="2"}`, `x{a="1",  b="2"}`},
		"matchers last":            {`x{a="1", }`, `x{a="1", }`},
		"several":                  {`x{,,a="1",,,b="2"} + y{,}`, `x{a="1",b="2"} + y{}`},
		"without a name":           {`{, __name__="x"}`, `{ __name__="x"}`},
		"a quoted name":            {`{,"a.b"="1",,"x.y"}`, `{"a.b"="1","x.y"}`},
		"labels first":             {`sum(x) by (, le)`, `sum(x) by ( le)`},
		"labels in between":        {`sum by (a,,le)(x)`, `sum by (a,le)(x)`},
		"every list of labels":     {`x * on (,a) group_left (,b) y + ignoring(,a) z + sum without(,a)(x) + x / ON(,a) GROUP_RIGHT(,c) y`, `x * on (a) group_left (b) y + ignoring(a) z + sum without(a)(x) + x / ON(a) GROUP_RIGHT(c) y`},
		"a comment in between":     {"x{ # the client's, or none,\n, a=\"1\"}", "x{ # the client's, or none,\n a=\"1\"}"},
		"commas in strings":        {`label_join(x{,a="{,,("}, "b", ",,", ",")`, `label_join(x{a="{,,("}, "b", ",,", ",")`},
		"arguments are not a list": {`quantile(, x)`, `quantile(, x)`},
		"nothing is empty":         {`sum(rate(x{a="1",b=~"2,"}[5m:1m] offset -1m)) by (a, b,)`, `sum(rate(x{a="1",b=~"2,"}[5m:1m] offset -1m)) by (a, b,)`},
		"what is no PromQL":        {`x{,a="1"} default $ {,b="2"}`, `x{a="1"} default $ {,b="2"}`},
		"an open string":           {`x{,a="1`, `x{a="1`},
		"nothing":                  {``, ``},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OmitEmptyItems(test.expression); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// FuzzOmitEmptyItems: an expression that can be parsed stays as it is, a comma in front of its
// matchers is removed, and nothing but commas ever is.
func FuzzOmitEmptyItems(f *testing.F) {
	for _, seed := range []string{`sum(x{, queue=~"a.*"}) by (, le)`, `a="1",b=~"{,("`, `{,,}`, "x{# ,\n,'a,'=`,`}", `"a.b"="1"`, `sum by(a,,b)(x)`, `x[5m:1m,]`, "\xff{,", `{a="\",,"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := OmitEmptyItems(text)
		if strings.ReplaceAll(got, ",", "") != strings.ReplaceAll(text, ",", "") {
			t.Errorf("%q becomes %q", text, got)
		}
		if again := OmitEmptyItems(got); again != got {
			t.Errorf("%q becomes %q, and then %q", text, got, again)
		}
		if _, err := Parse(text); err == nil && got != text {
			t.Errorf("%q can be parsed, and becomes %q", text, got)
		}
		selector := "x{" + text + "}"
		if CheckSelector(selector) != nil {
			return
		}
		if got := OmitEmptyItems("x{," + text + "}"); got != selector {
			t.Errorf("with an empty item first %q becomes %q", selector, got)
		}
	})
}
