// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"fmt"
	"regexp"
	"text/template"

	"github.com/prometheus/common/model"
)

// judge says what prometheus-adapter itself refuses in a rule, which it does as it
// starts. Here such a rule is taken over, and reported by its own condition.
func (r *rule) judge(external bool) []string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for i, f := range r.SeriesFilters {
		if (f.Is == "") == (f.IsNot == "") {
			add("seriesFilters[%d] needs is or isNot, and not both", i)
		}
		for _, expression := range []string{f.Is, f.IsNot} {
			if _, err := regexp.Compile(expression); err != nil {
				add("seriesFilters[%d]: %v", i, err)
			}
		}
	}
	if matches, err := regexp.Compile(r.Name.Matches); err != nil {
		add("name.matches: %v", err)
	} else if r.Name.As == "" && matches.NumSubexp() > 1 {
		add("name.as is needed, since name.matches has %d groups", matches.NumSubexp())
	}
	if r.Resources.Template == "" && len(r.Resources.Overrides) == 0 && !external {
		add("resources needs a template or overrides, or no series describes an object")
	}
	for _, field := range []struct{ name, text string }{
		{"resources.template", r.Resources.Template}, {"metricsQuery", r.MetricsQuery},
	} {
		if _, err := template.New(field.name).Delims("<<", ">>").Parse(field.text); err != nil {
			add("%v", err)
		}
	}
	return wrong
}

func (r *resourceRules) judge() []string {
	var wrong []string
	if r.Window != "" {
		if _, err := model.ParseDuration(r.Window); err != nil {
			wrong = append(wrong, "window: "+err.Error())
		}
	}
	for _, one := range []struct {
		name string
		rule resourceRule
	}{{"cpu", r.CPU}, {"memory", r.Memory}} {
		if one.rule.ContainerQuery == "" || one.rule.NodeQuery == "" || one.rule.ContainerLabel == "" {
			wrong = append(wrong, one.name+" needs containerQuery, nodeQuery and containerLabel")
		}
	}
	return wrong
}
