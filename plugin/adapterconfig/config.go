// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// config is prometheus-adapter's configuration, in the order of its fields, without the
// operator's own fields of a rule, which prometheus-adapter rejects.
type config struct {
	Rules         []rule         `yaml:"rules,omitempty"`
	ResourceRules *resourceRules `yaml:"resourceRules,omitempty"`
	ExternalRules []rule         `yaml:"externalRules,omitempty"`
}

type rule struct {
	SeriesQuery   string    `yaml:"seriesQuery"`
	SeriesFilters []filter  `yaml:"seriesFilters,omitempty"`
	Resources     resources `yaml:"resources,omitempty"`
	Name          naming    `yaml:"name,omitempty"`
	MetricsQuery  string    `yaml:"metricsQuery,omitempty"`
}

type filter struct {
	Is    string `yaml:"is,omitempty"`
	IsNot string `yaml:"isNot,omitempty"`
}

type resources struct {
	Template   string              `yaml:"template,omitempty"`
	Overrides  map[string]resource `yaml:"overrides,omitempty"`
	Namespaced *bool               `yaml:"namespaced,omitempty"`
}

type resource struct {
	Group    string `yaml:"group,omitempty"`
	Resource string `yaml:"resource"`
}

type naming struct {
	Matches string `yaml:"matches,omitempty"`
	As      string `yaml:"as,omitempty"`
}

type resourceRules struct {
	CPU    resourceRule `yaml:"cpu"`
	Memory resourceRule `yaml:"memory"`
	Window string       `yaml:"window,omitempty"`
}

type resourceRule struct {
	ContainerQuery string    `yaml:"containerQuery"`
	NodeQuery      string    `yaml:"nodeQuery,omitempty"`
	Resources      resources `yaml:"resources"`
	ContainerLabel string    `yaml:"containerLabel"`
}

// all yields the rules with their names.
func (r *resourceRules) all() iter.Seq2[string, *resourceRule] {
	return func(yield func(string, *resourceRule) bool) { _ = yield("cpu", &r.CPU) && yield("memory", &r.Memory) }
}

func (c *config) empty() bool {
	return len(c.Rules) == 0 && len(c.ExternalRules) == 0 && c.ResourceRules == nil
}

// decodeStrict rejects unknown fields and duplicate keys, as prometheus-adapter does.
func decodeStrict(text []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(goType.ReplaceAllString(err.Error(), ""))
	}
	return nil
}

// goType is the part of the decoder's errors that names Go types.
var goType = regexp.MustCompile(` (in type|into) \S*adapterconfig\.\w+`)

// decodeNode is decodeStrict for a node.
func decodeNode(node *yaml.Node, into any) error {
	text, err := yaml.Marshal(node)
	if err != nil {
		return err
	}
	return decodeStrict(text, into)
}
