// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// What the CRD takes at most. It refuses the whole MetricsBackend for one that is longer.
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

// tooLarge says what the CRD will refuse.
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
		for path, one := range map[string]*resourceRule{"resourceRules.cpu": &r.CPU, "resourceRules.memory": &r.Memory} {
			length(path+".containerQuery", one.ContainerQuery, maxQuery)
			length(path+".nodeQuery", one.NodeQuery, maxQuery)
			labels(path, &one.Resources)
			length(path+".containerLabel", one.ContainerLabel, maxTemplate)
		}
	}
	slices.Sort(all) // maps have no order
	return all
}
