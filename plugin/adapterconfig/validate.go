// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"fmt"
	"regexp"
	"slices"
	"text/template"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// problems returns why prometheus-adapter rejects a rule, which it does when it starts. The
// rule is imported all the same, and reported by its own condition.
func (r *rule) problems(external bool) []string {
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

func (r *resourceRules) problems() []string {
	var wrong []string
	if r.Window != "" {
		if _, err := model.ParseDuration(r.Window); err != nil {
			wrong = append(wrong, "window: "+err.Error())
		}
	}
	for name, rule := range r.all() {
		if rule.ContainerQuery == "" || rule.NodeQuery == "" || rule.ContainerLabel == "" {
			wrong = append(wrong, name+" needs containerQuery, nodeQuery and containerLabel")
		}
	}
	return wrong
}

// The limits of the CRD, which rejects a MetricsBackend that exceeds one.
const (
	maxRules     = 1000
	maxQuery     = v1alpha1.MaxQueryLength
	maxFilters   = 100
	maxRegexp    = 4096
	maxTemplate  = 1024
	maxOverrides = 200
	maxName      = 253
	maxWindow    = 32
)

// tooLarge returns what the CRD will reject.
func (c *config) tooLarge() []string {
	var all []string
	add := func(path string, n, most int) {
		if n > most {
			all = append(all, fmt.Sprintf("%s: it has %d, and the MetricsBackend is refused with more than %d", path, n, most))
		}
	}
	length := func(path, text string, most int) {
		add(path+" in characters", utf8.RuneCountInString(text), most)
	}
	labels := func(path string, r *resources) {
		length(path+".resources.template", r.Template, maxTemplate)
		add(path+".resources.overrides", len(r.Overrides), maxOverrides)
		for label, of := range r.Overrides {
			length(fmt.Sprintf("%s.resources.overrides[%s]", path, label), of.Group, maxName)
			length(fmt.Sprintf("%s.resources.overrides[%s]", path, label), of.Resource, maxName)
		}
	}
	for _, section := range []struct {
		path  string
		rules []rule
	}{{"rules", c.Rules}, {"externalRules", c.ExternalRules}} {
		add(section.path, len(section.rules), maxRules)
		for i := range section.rules {
			r, path := &section.rules[i], fmt.Sprintf("%s[%d]", section.path, i)
			length(path+".seriesQuery", r.SeriesQuery, maxQuery)
			add(path+".seriesFilters", len(r.SeriesFilters), maxFilters)
			for k, f := range r.SeriesFilters {
				length(fmt.Sprintf("%s.seriesFilters[%d]", path, k), f.Is, maxRegexp)
				length(fmt.Sprintf("%s.seriesFilters[%d]", path, k), f.IsNot, maxRegexp)
			}
			labels(path, &r.Resources)
			length(path+".name.matches", r.Name.Matches, maxRegexp)
			length(path+".name.as", r.Name.As, maxTemplate)
			length(path+".metricsQuery", r.MetricsQuery, maxQuery)
		}
	}
	if r := c.ResourceRules; r != nil {
		length("resourceRules.window", r.Window, maxWindow)
		for name, one := range r.all() {
			path := "resourceRules." + name
			length(path+".containerQuery", one.ContainerQuery, maxQuery)
			length(path+".nodeQuery", one.NodeQuery, maxQuery)
			labels(path, &one.Resources)
			length(path+".containerLabel", one.ContainerLabel, maxTemplate)
		}
	}
	slices.Sort(all) // maps have no order
	return all
}
