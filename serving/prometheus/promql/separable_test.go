// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"
	"testing"
)

// renderings are a template's expressions: M is where the matcher on pod goes, V where
// its value does in quotes.
func renderings(template string) Rendering {
	fill := func(matcher, value string) string {
		return strings.NewReplacer("M", matcher, "V", value).Replace(template)
	}
	return Rendering{
		Label: "pod", First: "a", Second: "b",
		One: fill(`pod="a"`, "a"), Two: fill(`pod=~"a|b"`, "a|b"), All: fill(`pod!=""`, AnyValue),
	}
}

func TestSeparable(t *testing.T) {
	for name, template := range map[string]string{
		"a sum":                  `sum(x{M}) by (pod)`,
		"a rate":                 `sum(rate(x{M,container!="POD"}[2m])) by (pod)`,
		"by more":                `sum by (namespace, pod) (irate(x{M}[4m]))`,
		"no aggregation":         `x{M}`,
		"a function":             `clamp_max(rate(x{M}[5m]), 100)`,
		"without another":        `avg without (instance) (x{M})`,
		"in parentheses":         `(-(sum(x{M}) by (pod)))`,
		"a ratio":                `sum(a{M}) by (pod) / sum(b{M}) by (pod)`,
		"a ratio on the label":   `sum(a{M}) by (pod) / on(pod) sum(b{M}) by (pod)`,
		"times a number":         `1000 * sum(x{M}) by (pod) / 60`,
		"a threshold":            `sum(x{M}) by (pod) > 5`,
		"a bool":                 `sum(x{M}) by (pod) > bool 5`,
		"with a constant scalar": `sum(x{M}) by (pod) / scalar(max(limit))`,
		"a subquery":             `max_over_time(sum(rate(x{M}[1m])) by (pod)[5m:30s])`,
		"a quantile":             `histogram_quantile(0.9, sum(rate(x_bucket{M}[5m])) by (le, pod))`,
		"value in a regexp":      `sum(x{pod=~"V"}) by (pod)`,
		"matcher and value":      `sum(x{M}) by (pod) / sum(y{pod=~"V"}) by (pod)`,
		"only with something":    `sum(x{M}) by (pod) and on() up{job="leader"}`,
		"or another":             `sum(x{M}) by (pod) or sum(y{M}) by (pod)`,
		"another matcher on it":  `sum(x{M,pod!~"canary-.*"}) by (pod)`,
		"offset":                 `sum(x{M} offset 5m) by (pod)`,
	} {
		t.Run(name, func(t *testing.T) {
			if !Separable(renderings(template)) {
				t.Errorf("%s is separable", template)
			}
		})
	}
}

func TestNotSeparable(t *testing.T) {
	for name, template := range map[string]string{
		"the label is lost":           `sum(x{M})`,
		"lost by by":                  `sum(x{M}) by (namespace)`,
		"lost by without":             `sum without (pod) (x{M})`,
		"the largest":                 `topk(1, x{M})`,
		"the largest of each":         `topk by (pod) (1, x{M})`,
		"limited":                     `limitk(1, x{M})`,
		"absent":                      `absent(x{M})`,
		"absent over time":            `absent_over_time(x{M}[5m])`,
		"one number":                  `vector(scalar(x{M}))`,
		"a share of all":              `sum(x{M}) by (pod) / scalar(sum(x{M}))`,
		"a share of all, joined":      `sum(x{M}) by (pod) / on() group_left sum(x{M})`,
		"an offset by all":            `x{M} - on() group_left avg(x{M})`,
		"or zero":                     `sum(x{M}) by (pod) or vector(0)`,
		"or a constant":               `vector(0) or sum(x{M}) by (pod)`,
		"nothing that is asked for":   `sum(x) by (pod)`,
		"constant":                    `count(x{sharp="true"})`,
		"the value as a string":       `label_replace(sum(x{M}) by (pod), "who", "V", "", "")`,
		"the value as a number":       `sum(x{M}) by (pod) + bool_V`,
		"the value in another label":  `sum(x{M,owner=~"V"}) by (pod)`,
		"the value as it is":          `sum(x{pod="V"}) by (pod)`,
		"relabelled":                  `label_replace(x{M}, "pod", "all", "", "")`,
		"a name that is not fixed":    `rate({__name__=~"x.*",M}[5m])`,
		"joined with what may differ": `a{M} * on(pod) group_left(node) b{M}`,
		"ambiguous sides":             `a{M} / on(pod) b{M}`,
		"ignoring":                    `a{M} / ignoring(code) b{M}`,
		"with a constant vector":      `a{M} * on(node) group_left() node_weight`,
		"filled in":                   `sum(a{M}) by (pod) + fill(0) sum(b{M}) by (pod)`,
		"sorted":                      `sort(x{M})`,
		"values counted":              `count_values("pod", x{M})`,
		"info":                        `info(x{M})`,
		"no PromQL":                   `sum(x{M}) by`,
	} {
		t.Run(name, func(t *testing.T) {
			if Separable(renderings(template)) {
				t.Errorf("%s is not separable", template)
			}
		})
	}
	// A template may look at what is asked for.
	r := renderings(`sum(x{M}) by (pod)`)
	r.Two = strings.Replace(r.Two, "sum", "max", 1)
	if Separable(r) {
		t.Error("the expression for two differs")
	}
	r = renderings(`sum(x{M}) by (pod)`)
	r.All = strings.Replace(r.All, "x{", `x{job="y",`, 1)
	if Separable(r) {
		t.Error("the expression for all differs")
	}
	r = renderings(`histogram_quantile(0.9, sum(x{M}) by (pod))`)
	r.One, r.Two, r.All, r.Label = strings.ReplaceAll(r.One, "pod", "le"), strings.ReplaceAll(r.Two, "pod", "le"), strings.ReplaceAll(r.All, "pod", "le"), "le"
	if Separable(r) {
		t.Error("the label is the buckets'")
	}
}
