// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
)

func written(t *testing.T, selections []Selection) string {
	t.Helper()
	var all []string
	for _, s := range selections {
		all = append(all, s.Matcher.String())
	}
	return strings.Join(all, ",")
}

func TestFromSelector(t *testing.T) {
	for selector, want := range map[string]string{
		"":                         "",
		"verb=GET":                 `verb="GET"`,
		"verb==GET":                `verb="GET"`,
		"verb!=GET":                `verb!="GET"`,
		"verb in (GET)":            `verb="GET"`,
		"verb in (PUT,GET)":        `verb=~"GET|PUT"`,
		"verb notin (GET)":         `verb!="GET"`,
		"verb notin (PUT,GET)":     `verb!~"GET|PUT"`,
		"verb":                     `verb!=""`,
		"!verb":                    `verb=""`,
		"verb=":                    `verb=""`,
		"version in (v1.2,v1.3)":   `version=~"v1\\.2|v1\\.3"`,
		"version=v1.2":             `version="v1.2"`,
		"b=2,a=1,a!=3":             `a="1",a!="3",b="2"`,
		"app.kubernetes.io/name=x": `"app.kubernetes.io/name"="x"`,
		"with-dash=x":              `"with-dash"="x"`,
	} {
		t.Run(selector, func(t *testing.T) {
			parsed, err := labels.Parse(selector)
			if err != nil {
				t.Fatal(err)
			}
			got, err := FromSelector(parsed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, written(t, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFromSelectorRefuses(t *testing.T) {
	for _, selector := range []string{"a>1", "a<1"} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromSelector(parsed); err == nil || !strings.Contains(err.Error(), "cannot be asked of PromQL") {
			t.Errorf("%s: error %v", selector, err)
		}
	}
	if _, err := FromSelector(labels.Nothing()); err == nil {
		t.Error("a selector of nothing made matchers")
	}
}

func TestMatchersCannotBeLeft(t *testing.T) {
	for _, value := range []string{`"`, `\`, "`", "\n", `"} or up{a="`, "|", "a|b", ".*", "[a-z]+", "$", "^", "(?i)x", "ä€", "\x7f"} {
		for _, m := range []Matcher{Equal("l", value), Equal("l", value, "other"), Equal(`l"}`, value)} {
			matchers, err := promParser.ParseMetricSelector("{x=\"y\"," + m.String() + "}")
			if err != nil || len(matchers) != 2 {
				t.Errorf("%s: %d matchers, %v", m, len(matchers), err)
				continue
			}
			if !matchers[1].Matches(value) || matchers[1].Matches(value+"x") || matchers[1].Matches("") {
				t.Errorf("%s does not match exactly %q", m, value)
			}
		}
	}
}

func FuzzEqual(f *testing.F) {
	f.Add("label", "value", "other")
	f.Add("a.b", `"}`, `\`)
	f.Add("_", ".*", "|")
	f.Fuzz(func(t *testing.T, label, value, other string) {
		if label == "" || value == "" || other == "" || strings.ToValidUTF8(label+value+other, "") != label+value+other || label == "__name__" {
			return
		}
		for _, m := range []Matcher{Equal(label, value), Equal(label, value, other)} {
			matchers, err := promParser.ParseMetricSelector(`{x="y",` + m.String() + "}")
			if err != nil || len(matchers) != 2 || matchers[1].Name != label || !matchers[1].Matches(value) {
				t.Errorf("%s: %v, %v", m, matchers, err)
			}
		}
	})
}

func TestCheckSelector(t *testing.T) {
	for selector, want := range map[string]string{
		`up`: "", `{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}`: "",
		`{namespace!="",__name__!~"^container_.*"}`: "", `cheddar{sharp="true"}`: "", `{__name__="queue_depth",topic!=""}`: "",
		`{"http.requests",pod!=""}`: "",
		`{}`:                        "selects everything", `{pod=~".*"}`: "selects everything", `{__name__!~"^x"}`: "selects everything",
		`up{`: "character 4", `rate(up[5m])`: "character", `up or down`: "character", `up{pod=~"("}`: "missing closing",
		strings.Repeat("x", MaxExpression+1): "bytes long",
	} {
		err := CheckSelector(selector)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40s: error %v, want %q", selector, err, want)
		}
	}
}
