// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// backend is a MetricsBackend with the fields that an import sets.
type backend struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   map[string]string `yaml:"metadata"`
	Spec       backendSpec       `yaml:"spec"`
}

type backendSpec struct {
	Sources         []namedSource            `yaml:"sources"`
	ResourceMetrics *metrics[*resourceRules] `yaml:"resourceMetrics,omitempty"`
	CustomMetrics   *metrics[[]importedRule] `yaml:"customMetrics,omitempty"`
	ExternalMetrics *metrics[[]importedRule] `yaml:"externalMetrics,omitempty"`
}

type namedSource struct {
	Name       string `yaml:"name"`
	Prometheus source `yaml:"prometheus"`
}

type metrics[R any] struct {
	Rules R `yaml:"rules"`
}

// importedRule is a rule with the one additional field that an import may set.
type importedRule struct {
	rule      `yaml:",inline"`
	NaNAsZero bool `yaml:"nanAsZero,omitempty"`
}

// options of an import.
type options struct {
	// name of the MetricsBackend, sourceName of the source.
	name, sourceName string
	nanAsZero        bool
}

// write writes the MetricsBackend, with comments on differences. It returns what could not be
// carried over, which the comments have, too.
func write(out io.Writer, f *input, o options) ([]string, error) {
	spec := backendSpec{Sources: []namedSource{{Name: o.sourceName, Prometheus: f.source}}}
	if f.config.ResourceRules != nil {
		spec.ResourceMetrics = &metrics[*resourceRules]{f.config.ResourceRules}
	}
	spec.CustomMetrics = imported(f.config.Rules, o.nanAsZero)
	// prometheus-adapter converts a NaN to the least integer there, which nobody wants.
	spec.ExternalMetrics = imported(f.config.ExternalRules, false)

	var document yaml.Node
	err := document.Encode(backend{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "MetricsBackend",
		Metadata: map[string]string{"name": o.name}, Spec: spec,
	})
	if err != nil {
		return nil, fmt.Errorf("make YAML of the MetricsBackend: %w", err)
	}
	leftOut := slices.Concat(f.leftOut, f.config.tooLarge(), f.source.leftOut)
	wrongRules := annotate(&document, f)
	var text bytes.Buffer
	text.WriteString(preamble(f, o, leftOut))
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return nil, fmt.Errorf("write YAML of the MetricsBackend: %w", err)
	}
	_, err = out.Write(text.Bytes())
	return slices.Concat(leftOut, wrongRules), err
}

func imported(rules []rule, nanAsZero bool) *metrics[[]importedRule] {
	if len(rules) == 0 {
		return nil
	}
	m := &metrics[[]importedRule]{}
	for _, r := range rules {
		m.Rules = append(m.Rules, importedRule{rule: r, NaNAsZero: nanAsZero})
	}
	return m
}

// annotate adds comments with the problems of rules, and returns these with their paths.
func annotate(document *yaml.Node, f *input) []string {
	spec := at(document, "spec")
	var all []string
	note := func(node *yaml.Node, path, these string, refused, unusable []string) {
		var text string
		switch {
		case len(refused) > 0:
			text = "prometheus-adapter refuses " + these + ": " + strings.Join(refused, "; ")
		case len(unusable) > 0:
			text = "cannot be carried over: " + strings.Join(unusable, "; ")
		default:
			return
		}
		node.HeadComment = comment(text, "")
		all = append(all, path+": "+text)
	}
	for _, section := range []struct {
		name  string
		rules []rule
	}{{"customMetrics", f.config.Rules}, {"externalMetrics", f.config.ExternalRules}} {
		nodes, external := at(at(spec, section.name), "rules"), section.name == "externalMetrics"
		for i := range section.rules {
			r := &section.rules[i]
			note(nodes.Content[i], fmt.Sprintf("spec.%s.rules[%d]", section.name, i), "this rule", r.problems(external), r.unusable(external))
		}
	}
	if r := f.config.ResourceRules; r != nil {
		note(at(at(spec, "resourceMetrics"), "rules"), "spec.resourceMetrics.rules", "these rules", r.problems(), r.unusable())
	}
	return all
}

// preamble returns a comment with the origin of the rules, and differences.
func preamble(f *input, o options, leftOut []string) string {
	remarks := slices.Clone(f.remarks)
	if f.config.ResourceRules == nil {
		remarks = append(remarks, "resourceRules: there are none, so this says nothing of metrics.k8s.io; resourceMetrics: {} serves it from the kubelets")
	}
	if !o.nanAsZero && len(f.config.Rules) > 0 {
		remarks = append(remarks, "NaN: prometheus-adapter answers 0, upon which autoscalers scale down; here it is no value; --nan-as-zero makes it as it was")
	}
	if len(f.config.ExternalRules) > 0 {
		remarks = append(append(remarks, "one NaN or infinite series of an external metric: prometheus-adapter answers a number far below zero for it, upon which autoscalers scale down; here the metric has no value; invalidValuesPolicy: Omit of the rule serves the other series"), differInCase(f.config.ExternalRules)...)
	}
	if len(f.config.Rules) > 0 {
		remarks = append(remarks, "several series of one object: prometheus-adapter answers any of them; here the object has no value, and status.rules warns of it while clients ask for it, unless the field duplicatesPolicy of the rule is Sum, Average, Minimum or Maximum")
	}
	var b strings.Builder
	b.WriteString(comment("Made of "+f.where+" by kubectl metrics-backend import prometheus-adapter.", "") + "\n#\n")
	b.WriteString(comment("A cluster has one MetricsBackend for all of its metrics APIs: apply this one, or put its fields into yours. While prometheus-adapter is registered, adoption of each API decides: docs/tasks/migrate-from-prometheus-adapter.md.", "") + "\n")
	list := func(heading string, all []string) {
		if len(all) > 0 {
			b.WriteString("#\n# " + heading + ":\n")
		}
		for _, text := range all {
			b.WriteString(comment(text, "- ") + "\n")
		}
	}
	list("Not carried over", leftOut)
	list("Not as it was", remarks)
	return b.String()
}

// commentWidth is the width at which comments are wrapped.
const commentWidth = 96

// comment wraps a text into lines of a comment, indented by the width of the bullet.
func comment(text, bullet string) string {
	var lines []string
	line := "# " + bullet
	start := len(line)
	for _, word := range strings.Fields(text) {
		if len(line) > start && len(line)+1+len(word) > commentWidth {
			lines = append(lines, line)
			line = "# " + strings.Repeat(" ", len(bullet))
			start = len(line)
		}
		if len(line) > start {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
