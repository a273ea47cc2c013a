// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package querytemplate

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var pods = Query{
	Series:            "http_requests_total",
	LabelMatchers:     `namespace="shop",pod=~"web-0|web-1"`,
	LabelValuesByName: map[string]string{"namespace": "shop", "pod": "web-0|web-1"},
	GroupBy:           "pod",
	GroupBySlice:      []string{"pod"},
}

func TestExecute(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		data any
		want string
	}{
		"a rate": {
			`sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)`, pods,
			`sum(rate(http_requests_total{namespace="shop",pod=~"web-0|web-1"}[2m])) by (pod)`,
		},
		"values by name": {`x{p=~"<<index .LabelValuesByName "pod">>"}`, pods, `x{p=~"web-0|web-1"}`},
		"a value that is missing is empty": {
			`x{p="<<index .LabelValuesByName "node">>"}`, pods, `x{p=""}`,
		},
		"a loop": {
			`<<range $i, $l := .GroupBySlice>><<if $i>>,<<end>><<$l>><<end>>`, pods, "pod",
		},
		"a loop over names":  {`<<range $k, $v := .LabelValuesByName>><<$k>>:<<$v>> <<end>>`, pods, "namespace:shop pod:web-0|web-1 "},
		"a defined template": {`<<define "m">>{<<.>>}<<end>>up<<template "m" .LabelMatchers>>`, pods, `up{namespace="shop",pod=~"web-0|web-1"}`},
		"functions":          {`<<printf "%s_%[1]s" .GroupBy>> <<len .Series>> <<print "a" 1>>`, pods, "pod_pod 19 a1"},
		"break":              {`<<range 5000>>x<<break>><<end>>`, pods, "x"},
		"a label":            {"kube_<<.Group>>_<<.Resource>>", Label{"apps", "deployment"}, "kube_apps_deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Parse("t", test.text)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // an execution leaves nothing to the next one
				got, err := tmpl.Execute(test.data)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestTemplatesThatDoNotEnd(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"a long loop":            {`<<range 1000000000000>><<end>>`, ErrTooMuchWork},
		"loops in loops":         {`<<range 9000>><<range 9000>><<range 9000>><<end>><<end>><<end>>`, ErrTooMuchWork},
		"recursion":              {`<<define "a">><<template "a" .>><<end>><<template "a" .>>`, ErrTooMuchWork},
		"recursion that doubles": {`<<define "a">><<template "a" .>><<template "a" .>><<end>><<template "a" .>>`, ErrTooMuchWork},
		"calls that double": {
			`<<define "a">><<template "b">><<template "b">><<end>><<define "b">><<template "c">><<template "c">><<end>>` +
				`<<define "c">><<range 100000>><<end>><<end>><<range 900>><<template "a">><<end>>`, ErrTooMuchWork,
		},
		"much output":                     {`<<range 100000>>0123456789012345678901234567890123456789<<end>>`, ErrTooLong},
		"a string that doubles":           {`<<$x := "abcdefgh">><<range 64>><<$x = printf "%s%s" $x $x>><<end>>`, ErrTooLong},
		"print that doubles":              {`<<$x := "abcdefgh">><<range 64>><<$x = print $x $x>><<end>>`, ErrTooLong},
		"js that doubles":                 {`<<$x := "\\">><<range 64>><<$x = js $x>><<end>>`, ErrTooLong},
		"one argument many times":         {`<<$x := "abcdefgh">><<range 16>><<$x = print $x $x>><<end>><<printf "` + strings.Repeat("%[1]s", 400) + `" $x>>`, ErrTooLong},
		"many widths":                     {`<<printf "` + strings.Repeat("%999d", 2000) + `">>`, ErrTooLong},
		"comparisons of long strings":     {`<<$x := "abcdefgh">><<range 15>><<$x = print $x $x>><<end>><<$y := print $x "y">><<$z := print $x "z">><<range 1000000>><<if eq $y $z>><<end>><<end>>`, ErrTooMuchWork},
		"results that nobody writes":      {`<<$x := "abcdefgh">><<range 15>><<$x = print $x $x>><<end>><<range 100000>><<$y := print $x>><<end>>`, ErrTooMuchWork},
		"nothing":                         {`<<if false>>x<<end>>`, ErrEmpty},
		"an empty text":                   {``, ErrEmpty},
		"the work of a step that it says": {`<<_step -5>>x`, ErrTooMuchWork},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Parse("t", test.text)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := tmpl.Execute(pods); !errors.Is(err, test.want) {
				t.Errorf("got %d bytes and error %v, want %v", len(got), err, test.want)
			}
		})
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for name, test := range map[string]struct{ text, parse, execute string }{
		"not closed":         {text: "up{<<.LabelMatchers}", parse: "bad character"},
		"no such function":   {text: "<<env `HOME`>>", parse: `function "env" not defined`},
		"no such field":      {text: "<<.Labels>>", execute: "can't evaluate field Labels"},
		"no such template":   {text: `<<template "x">>`, execute: `"x" not defined`},
		"an index too large": {text: `<<index .GroupBySlice 7>>`, execute: "out of range"},
		"a wide number":      {text: `<<printf "%1000000000d" 1>>`, execute: "three digits"},
		"a width by value":   {text: `<<printf "%*d" 1000000000 1>>`, execute: "three digits"},
		"too long":           {text: strings.Repeat("x", MaxSource+1), parse: "at most 32768"},
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := Parse("t", test.text)
			if test.parse != "" {
				if err == nil || !strings.Contains(err.Error(), test.parse) {
					t.Fatalf("Parse: error %v, want one with %q", err, test.parse)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = tmpl.Execute(pods)
			if err == nil || !strings.Contains(err.Error(), test.execute) {
				t.Fatalf("Execute: error %v, want one with %q", err, test.execute)
			}
			if strings.Contains(err.Error(), "template: ") {
				t.Errorf("the error is in text/template's words: %v", err)
			}
		})
	}
}

func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		`sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)`,
		`<<range .GroupBySlice>><<.>><<else>>x<<end>>`,
		`<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>><<end>>`,
		`<<define "a">><<template "a" .>><<end>><<template "a" .>>`,
		`<<range 100000000>><<end>>`,
		`<<$x := "a">><<range 100>><<$x = printf "%s%s" $x $x>><<end>>`,
		`<<printf "%[1]*d" 99999>>`, `<<slice .Series 0 4>>`, `<<with .Series>><<.>><<end>>`,
		`<<block "b" .>>x<<end>>`, `<<if and .Series (eq .GroupBy "pod")>>y<<end>>`, `<<call .Series>>`,
		`<</* a comment */ -}}`, `<<js "\\" | urlquery | html>>`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tmpl, err := Parse("t", text)
		if err != nil {
			return
		}
		got, err := tmpl.Execute(pods)
		if err != nil {
			return
		}
		if len(got) == 0 || len(got) > MaxOutput {
			t.Errorf("made %d bytes of %q", len(got), text)
		}
	})
}
