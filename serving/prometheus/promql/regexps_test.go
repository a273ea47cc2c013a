// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	promlabels "github.com/prometheus/prometheus/model/labels"

	"github.com/metricsbackend/metrics-backend-operator/internal/regexpsize"
)

// fill returns a regular expression of nearly the length that a declared query may have.
func fill(before, piece, after string) string {
	return before + strings.Repeat(piece, 16_000/len([]rune(piece))) + after
}

// What would take seconds to compile or to parse is refused before: each of these took from 0.5 to
// 30 s. What people write is not.
func TestSizeOfRegexps(t *testing.T) {
	const large, classes = "compile to more than", "too many Unicode classes"
	for name, test := range map[string]struct{ pattern, want string }{
		"counts":                      {fill("", "x{1000}", ""), large},
		"counts of any character":     {fill("", ".{1000}", ""), large},
		"alternatives with counts":    {fill("", "x{1000}|y{1000}|", ""), large},
		"nested counts":               {`((x{10}){10}){10}` + strings.Repeat(`((x{0,10}){10}){10}`, 10), large},
		"Unicode classes":             {fill("", `\pL`, ""), classes},
		"one of Unicode classes":      {fill("[^", `\PL`, "]"), classes},
		"ranges with (?i)":            {fill("(?i)[", "B-𞤀", "]"), classes},
		"escaped ranges with (?i)":    {fill("(?i)[", `B-\x{1e900}`, "]"), classes},
		"ranges with (?i) and (?s)":   {fill("(?is:", "[a-я]", ")"), classes},
		"octal ranges":                {fill("(?i)", `[\0-\777]`, ""), classes},
		"hexadecimal ranges":          {fill("(?i)[^", `\x00-\xff`, "]"), classes},
		"ranges after ]":              {fill(`\[a[]`, "B-𞤀", "]"), classes},
		"ranges after an escaped ]":   {fill(`[\]`, "B-𞤀", "[]"), classes},
		"ranges after a named class":  {fill(`[[:alpha:]`, "B-𞤀", "]"), classes},
		"ranges after a quoted [":     {fill(`\Q[\E[]`, "B-𞤀", "]"), classes},
		"Cyrillic with hyphens":       {strings.Repeat("заказ-оплата[0-9]|", 50) + `заказ-я\[-я`, ""},
		"few ranges with (?i)":        {`(?i)[B-𞤀]+[B-𞤀]`, ""},
		"many classes":                {fill("", "[^/]", ""), ""},
		"many options":                {fill("", "x?", ""), ""},
		"many names":                  {fill("", `web-[0-9]+\.a|`, "web"), ""},
		"many words":                  {strings.Repeat("web|", 200_000) + "web", ""},
		"paths":                       {`/api/v[0-9]+/[^/]{1,63}/(items|orders)/\d{1,10}`, ""},
		"names of hosts":              {`([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.){1,10}example\.com`, ""},
		"Cyrillic, whatever the case": {`(?i)[а-я]+-[а-яё]+`, ""},
		"all letters":                 {`\pL[\pL\pN]*`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, query := range []string{`sum(up{a=~"` + `%s` + `"})`, `up{a!~'%s'}`, "label_replace(up, 'a', '', 'b', `%s`)"} {
				pattern := test.pattern
				if !strings.Contains(query, "`") {
					pattern = strings.ReplaceAll(pattern, `\`, `\\`)
				}
				_, err := Parse(strings.Replace(query, "%s", pattern, 1))
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: error %v, want one with %q", query, err, test.want)
				}
			}
			if err := CheckSelector("up{a=~`" + test.pattern + "`}"); (err == nil) != (test.want == "") {
				t.Errorf("as a selector: %v", err)
			}
		})
	}
	if _, err := Parse("up / on(a) up{b=~`x+[`}"); err == nil || !strings.HasPrefix(err.Error(), "character 18: ") {
		t.Errorf("error %v, want one with the position", err)
	}
	many := strings.Repeat(`,a=~"x{900}"`, 20)
	if _, err := Parse(`up{a="b"` + many + `}`); err == nil {
		t.Error("matchers together may be larger than each")
	}
	if got := MetricName(`up{a="b"` + many + `}`); got != "" {
		t.Errorf("%q is read from a selector that is refused", got)
	}
}

// Nothing is compiled: the matchers have only their text, and match as Prometheus' do.
func TestMatchersAreNotCompiled(t *testing.T) {
	const query = `sum(a{b=~"[^/]+x",c!~'',d=~"e|f"}) / count(topk(scalar(g{h!~"i.*"}), j{k=~` + "`l+`" + `} # =~"m"` + "\n))"
	e, err := Parse(query)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, s := range selectors(e) {
		for _, m := range s.LabelMatchers {
			texts = append(texts, m.String())
			if m.GetRegexString() != "" {
				t.Errorf("%s is compiled", m)
			}
		}
	}
	want := []string{`b=~"[^/]+x"`, `c!~""`, `d=~"e|f"`, `__name__="a"`, `k=~"l+"`, `__name__="j"`, `h!~"i.*"`, `__name__="g"`}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("matchers (-want +got):\n%s", diff)
	}
}

func FuzzRegexps(f *testing.F) {
	for _, seed := range []string{
		"", "x", "a|b", "|", "x{3,7}y?", `(a|b*)+\b`, `(?i)[a-zа-я]`, `\pL{10}`, `((x{2}){3}){0}`, "()*", "(|){5}", `\Qa.b`, "(?s).*", "^$", `[^\x00-\x{10FFFF}]`, "x{0,}", "x{5,}", "(?:^)*", `\B`, "(?m)^",
	} {
		f.Add(seed, "shop")
	}
	f.Fuzz(func(t *testing.T, pattern, value string) {
		if len(pattern) > 4096 || len(value) > 256 {
			return
		}
		for _, kind := range []promlabels.MatchType{promlabels.MatchRegexp, promlabels.MatchNotRegexp} {
			text := `x{a="b",` + Matcher{"c", kind, pattern}.String() + `}`
			e, err := Parse(text)
			if err != nil {
				return
			}
			m := selectors(e)[0].LabelMatchers[1]
			parsed, err := syntax.Parse(pattern, syntax.Perl|syntax.DotNL)
			if err != nil && !strings.ContainsAny(pattern, `\.+*?()[]{}^$`) {
				return // words
			}
			if err != nil {
				t.Fatal(err)
			}
			program, err := syntax.Compile(parsed.Simplify())
			if err != nil {
				t.Fatal(err)
			}
			// InstFail and InstMatch are in each program.
			if size, _ := regexpsize.Measure(parsed); len(program.Inst) > size+2 || len(program.Inst) > maxInstructions+len(text)+2 {
				t.Errorf("%q has %d instructions: the bound is %d", pattern, len(program.Inst), size)
			}
			compiled, err := promlabels.NewMatcher(m.Type, m.Name, m.Value)
			if err != nil || m.Value != pattern {
				t.Fatalf("the matcher is %s: %v", m, err)
			}
			if got, want := matches(m, value), compiled.Matches(value); got != want {
				t.Errorf("%s matches %q: %v, want %v", m, value, got, want)
			}
			// The parser asks whether a selector without another matcher selects everything.
			_, err = Parse(`{` + Matcher{"c", kind, pattern}.String() + `}`)
			if (err == nil) != !compiled.Matches("") {
				t.Errorf("%s selects everything: %v, and Parse returns %v", m, compiled.Matches(""), err)
			}
		}
	})
}

// refused matches the errors of Parse about expressions of Prometheus that are too large, or no number.
var refused = regexp.MustCompile("too many Unicode classes|compile to more than|operators and brackets|^the query is a (range|string)")

// FuzzParse checks that queries mean what they mean to Prometheus' parser.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`up`, `sum(a{b=~"c.*"} or d{e!~"f|g", h=~'[^/]+'})`, "x{a=~`b+`} # =~\"c\"", `topk(scalar(a{b=~"c+"}), d{e=~"f+"})`, `{"a"=~"b."}`, `info(a, {b=~"c."})`, `max_over_time(a{b!~".c"}[1h:1m] @ end())`, `{a=~"b." or c=~"d."}`, `a{b=~}`, `a{b=~"c" "d"}`, `a{b=~"\xff."}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1024 || strings.Count(text, "{") > 20 {
			return
		}
		got, err := Parse(text)
		want, wantErr := promParser.ParseExpr(text)
		if err != nil {
			if wantErr == nil && !refused.MatchString(err.Error()) {
				t.Errorf("%q is not accepted: %v", text, err)
			}
			return
		}
		if wantErr != nil {
			if !strings.Contains(wantErr.Error(), "regexp") {
				t.Errorf("%q is accepted: %v", text, wantErr)
			}
			return
		}
		if got.String() != want.String() {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	})
}
