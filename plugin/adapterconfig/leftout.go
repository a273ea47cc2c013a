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

	"github.com/prometheus/common/model"
	promlabels "github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/metricsbackend/metrics-backend-operator/internal/querytemplate"
)

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
