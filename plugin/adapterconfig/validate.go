// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
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

// unusable returns why serving would report a rule that prometheus-adapter accepts as invalid. The
// rule is imported all the same.
func (r *rule) unusable(external bool) []string {
	var wrong []string
	if err := checkSelector(r.SeriesQuery); err != nil {
		wrong = append(wrong, "seriesQuery "+err.Error())
	}
	wrong = append(wrong, r.Resources.unusable("resources")...)
	if err := checkQuery(r.MetricsQuery, !external); err != nil {
		wrong = append(wrong, "metricsQuery: "+err.Error())
	}
	return wrong
}

// unusable is rule.unusable for the rules of resource metrics.
func (r *resourceRules) unusable() []string {
	var wrong []string
	for name, rule := range r.all() {
		wrong = append(wrong, rule.Resources.unusable(name+".resources")...)
		for _, query := range []struct{ name, text string }{{"containerQuery", rule.ContainerQuery}, {"nodeQuery", rule.NodeQuery}} {
			if err := checkQuery(query.text, true); err != nil {
				wrong = append(wrong, fmt.Sprintf("%s.%s: %v", name, query.name, err))
			}
		}
	}
	return wrong
}

// differInCase returns remarks on external rules whose only metrics differ in case alone.
func differInCase(rules []rule) (remarks []string) {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].onlyName()
		other := slices.IndexFunc(names[:i], func(name string) bool { return name != names[i] && strings.EqualFold(name, names[i]) })
		if other >= 0 {
			remarks = append(remarks, fmt.Sprintf("spec.externalMetrics.rules[%d] and rules[%d]: the metrics %s and %s differ in case alone, and autoscalers ask in lower case: give one of them another name",
				other, i, names[other], names[i]))
		}
	}
	return remarks
}

// onlyName returns the name of the metrics of a rule if it is certain that all its series have the
// same, else "".
func (r *rule) onlyName() string {
	matchers, _ := parser.NewParser(parser.Options{}).ParseMetricSelector(r.SeriesQuery)
	name := r.Name.As
	for _, m := range matchers {
		if r.Name == (naming{}) && m.Name == model.MetricNameLabel && m.Type == promlabels.MatchEqual {
			name = m.Value
		}
	}
	if strings.Contains(name, "$") {
		return ""
	}
	return name
}

// checkSelector returns why a server has no series for a selector, whatever exists.
func checkSelector(selector string) error {
	selector = strings.TrimSpace(selector)
	if selector == "" {
		return errors.New("is empty")
	}
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		return fmt.Errorf("is not a selector of series: %w", err)
	}
	if !slices.ContainsFunc(matchers, func(m *promlabels.Matcher) bool { return !m.Matches("") }) {
		return errors.New(`selects everything: at least one matcher must not match the empty value, such as {namespace!=""}`)
	}
	return nil
}

func (r *resources) unusable(path string) []string {
	var wrong []string
	for _, label := range slices.Sorted(maps.Keys(r.Overrides)) {
		if r.Overrides[label].Resource == "" {
			wrong = append(wrong, fmt.Sprintf("%s.overrides[%s] names no resource", path, label))
		}
	}
	if err := checkLabels(r.Template); err != nil {
		wrong = append(wrong, fmt.Sprintf("%s.template: %v", path, err))
	}
	return wrong
}

// checkLabels returns why a template of labels cannot be read backwards, from a label to its
// resource.
func checkLabels(text string) error {
	if text == "" {
		return nil
	}
	t, err := querytemplate.Parse("template", text)
	if err != nil {
		return err
	}
	raw, err := t.Execute(querytemplate.Label{Group: "(?P<group>.+?)", Resource: "(?P<resource>.+?)"})
	if err != nil {
		return err
	}
	pattern, err := regexp.Compile("^" + raw + "$")
	switch {
	case err != nil:
		return fmt.Errorf("it does not make a pattern of labels: %w", err)
	case pattern.SubexpIndex("resource") < 0:
		return errors.New("<<.Resource>> is missing, so no label can name a resource")
	}
	label, err := t.Execute(querytemplate.Label{Group: "apps", Resource: "deployment"})
	if err == nil && (!model.UTF8Validation.IsValidLabelName(label) || !pattern.MatchString(label)) {
		err = fmt.Errorf("deployments of the group apps would have the label %q, which the template itself does not read as such: use text, <<.Group>> and <<.Resource>> only", label)
	}
	return err
}

// checkQuery executes a template of a query, with a value for each label that it may use.
func checkQuery(text string, grouped bool) error {
	if strings.TrimSpace(text) == "" {
		return nil // there is a default
	}
	t, err := querytemplate.Parse("query", text)
	if err != nil {
		return err
	}
	sample := querytemplate.Query{
		Series: "series", LabelMatchers: `namespace="default"`,
		LabelValuesByName: map[string]string{"namespace": "default", "pod": "web"},
	}
	if grouped {
		sample.GroupBy, sample.GroupBySlice = "pod", []string{"pod"}
	}
	if _, err = t.Execute(sample); err == nil {
		return nil
	}
	for _, word := range t.Words() {
		sample.LabelValuesByName[word] = "1"
	}
	if _, more := t.Execute(sample); more == nil {
		return nil
	}
	return err
}
