// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

func confineText(text, label, value string) (string, error) {
	e, err := Parse(text)
	if err != nil {
		return "", err
	}
	return Confine(e, label, value)
}

func TestConfine(t *testing.T) {
	for name, test := range map[string]struct{ query, want string }{
		"a metric":                          {`up`, `up{namespace="shop"}`},
		"other labels":                      {`up{job="api"}`, `up{job="api",namespace="shop"}`},
		"empty braces":                      {`up{}`, `up{namespace="shop"}`},
		"no name":                           {`{__name__=~".+"}`, `{__name__=~".+",namespace="shop"}`},
		"a name as label":                   {`{__name__="up"}`, `{__name__="up",namespace="shop"}`},
		"a quoted name":                     {`{"up"}`, `{__name__="up",namespace="shop"}`},
		"a name in UTF-8":                   {`{"http.requests"}`, `{__name__="http.requests",namespace="shop"}`},
		"its own matcher":                   {`up{namespace="shop"}`, `up{namespace="shop"}`},
		"a wider one":                       {`up{namespace=~".*"}`, `up{namespace="shop"}`},
		"any but another":                   {`up{namespace!="kube-system"}`, `up{namespace="shop"}`},
		"several of them":                   {`up{namespace=~"shop|other",namespace!=""}`, `up{namespace="shop"}`},
		"a quoted label":                    {`up{"namespace"=~".+"}`, `up{namespace="shop"}`},
		"a range":                           {`rate(hits[5m])`, `rate(hits{namespace="shop"}[5m])`},
		"a subquery":                        {`max_over_time(rate(hits[5m])[1h:1m])`, `max_over_time(rate(hits{namespace="shop"}[5m])[1h:1m])`},
		"nested subquery":                   {`sum_over_time((min_over_time(hits[1m:10s]) + a)[5m:])`, `sum_over_time((min_over_time(hits{namespace="shop"}[1m:10s]) + a{namespace="shop"})[5m:])`},
		"offset":                            {`hits offset 5m`, `hits{namespace="shop"} offset 5m`},
		"at":                                {`hits @ 1609746000`, `hits{namespace="shop"} @ 1609746000.000`},
		"at the end":                        {`rate(hits[5m] @ end())`, `rate(hits{namespace="shop"}[5m] @ end())`},
		"both sides":                        {`a / b`, `a{namespace="shop"} / b{namespace="shop"}`},
		"set operators":                     {`a or b unless c and d`, `a{namespace="shop"} or b{namespace="shop"} unless c{namespace="shop"} and d{namespace="shop"}`},
		"group_left":                        {`a * on (pod) group_left (x) b`, `a{namespace="shop"} * on (pod) group_left (x) b{namespace="shop"}`},
		"a parameter":                       {`topk(scalar(limit), hits)`, `topk(scalar(limit{namespace="shop"}), hits{namespace="shop"})`},
		"a bool":                            {`a > bool b`, `a{namespace="shop"} > bool b{namespace="shop"}`},
		"unary":                             {`-a`, `-a{namespace="shop"}`},
		"absent":                            {`absent(up{job="x"})`, `absent(up{job="x",namespace="shop"})`},
		"label_replace":                     {`label_replace(up, "namespace", "other", "", "")`, `label_replace(up{namespace="shop"}, "namespace", "other", "", "")`},
		"label_join":                        {`label_join(up, "namespace", "", "job")`, `label_join(up{namespace="shop"}, "namespace", "", "job")`},
		"no selector":                       {`vector(1)`, `vector(1)`},
		"time":                              {`time() % 60`, `time() % 60`},
		"a comment":                         {"up # {namespace=\"other\"}\n", `up{namespace="shop"}`},
		"a string":                          {`label_replace(up, "x", "up{}", "job", "(.*)")`, `label_replace(up{namespace="shop"}, "x", "up{}", "job", "(.*)")`},
		"without":                           {`sum without (namespace) (up)`, `sum without (namespace) (up{namespace="shop"})`},
		"count_values":                      {`count_values("namespace", up)`, `count_values("namespace", up{namespace="shop"})`},
		"an experiment":                     {`sort_by_label(up, "pod")`, `sort_by_label(up{namespace="shop"}, "pod")`},
		"limitk":                            {`limitk(2, up)`, `limitk(2, up{namespace="shop"})`},
		"histograms":                        {`histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))`, `histogram_quantile(0.9, sum by (le) (rate(x_bucket{namespace="shop"}[5m])))`},
		"a metric's name that is a keyword": {`sum(avg)`, `sum(avg{namespace="shop"})`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := confineText(test.query, "namespace", "shop")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := confineText(got, "namespace", "shop")
			if err != nil || again != got {
				t.Errorf("confined again it is %q, %v", again, err)
			}
		})
	}
}

func TestConfineRefuses(t *testing.T) {
	for name, test := range map[string]struct{ query, want string }{
		"another namespace":            {`up{namespace="kube-system"}`, `selects another namespace than "shop"`},
		"in a subquery":                {`max_over_time(sum(up{namespace="kube-system"})[5m:])`, "another namespace"},
		"in one of several":            {`up{namespace="shop"} or up{namespace=~"kube-.*"}`, "another namespace"},
		"not its own":                  {`up{namespace!="shop"}`, "another namespace"},
		"none":                         {`up{namespace=""}`, "another namespace"},
		"a quoted label":               {`up{"namespace"="kube-system"}`, "another namespace"},
		"an escaped value":             {`up{namespace="kube\u002dsystem"}`, "another namespace"},
		"info":                         {`info(up)`, "info() cannot be used"},
		"info, with a selector":        {`info(up, {namespace="shop",__name__="target_info"})`, "info() cannot be used"},
		"info, deep":                   {`sum(rate(a[1m])) + max_over_time(info(up)[5m:])`, "info() cannot be used"},
		"no PromQL":                    {`up{`, "character"},
		"everything":                   {`{}`, "at least one non-empty matcher"},
		"a range":                      {`up[5m]`, "range of samples"},
		"a string":                     {`"up"`, "not a number"},
		"two queries":                  {"up\nup", "character"},
		"nested deep":                  {strings.Repeat("(", 5000) + "up" + strings.Repeat(")", 5000), "more than 1000 operators"},
		"many signs":                   {strings.Repeat("-", 5000) + "up", "more than 1000 operators"},
		"many terms":                   {"up" + strings.Repeat(" or up{a!=\"}\"}", 5000), "more than 1000 operators"},
		"braces that close too often":  {strings.Repeat("}", 5000) + strings.Repeat("-", 5000) + "up", "character 1"},
		"a regular expression too bad": {`up{namespace=~"("}`, "missing closing"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := confineText(test.query, "namespace", "shop")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q and error %v, want one with %q", got, err, test.want)
			}
		})
	}
	if _, err := confineText("up", "namespace", ""); err == nil {
		t.Error("an empty value, which series without the label have too, confines nothing")
	}
}

// The value is data, whatever it holds.
func TestConfineQuotesTheValue(t *testing.T) {
	for _, value := range []string{`a"} or up{x="`, `\`, "`", "a\nb", "ä", `a"`, "}"} {
		got, err := confineText("up", "my.label", value)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if bad := loose(t, got, "my.label", value); bad != "" {
			t.Errorf("%q: %s", value, bad)
		}
	}
}

// loose says which selector of an expression does not have exactly the one matcher.
func loose(t testing.TB, expression, label, value string) string {
	t.Helper()
	e, err := promParser.ParseExpr(expression)
	if err != nil {
		return err.Error()
	}
	for _, matchers := range parser.ExtractSelectors(e) {
		on := slices.DeleteFunc(slices.Clone(matchers), func(m *promlabels.Matcher) bool { return m.Name != label })
		if len(on) != 1 || on[0].Type != promlabels.MatchEqual || on[0].Value != value {
			return "a selector is not confined in " + expression
		}
	}
	return ""
}

func FuzzConfine(f *testing.F) {
	for _, seed := range []string{
		`up`, `sum(rate(http_requests_total{namespace=~".*"}[5m])) by (pod)`, `{__name__=~".+"}`, `info(up)`,
		`max_over_time(rate(a[5m])[1h:1m] offset 5m @ start())`, `a / on(pod) group_left b`, `label_replace(a, "namespace", "x", "", "")`,
		`{"a.b", "c.d"="x"}`, `vector(1)`, `-1`, `a[5m] smoothed`, `rate(a[5m] anchored)`, `a fill(0) + b`, `sum by ("a.b") (x)`,
		`histogram_quantile(scalar(a), b)`, `x{namespace="other"}`, `a[step()+1]`, `count_values("namespace", a)`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		got, err := confineText(text, "namespace", "shop")
		if err != nil {
			return
		}
		if bad := loose(t, got, "namespace", "shop"); bad != "" {
			t.Errorf("%s, of %q", bad, text)
		}
	})
}
