// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// chart is the name of prometheus-adapter's Helm chart, under which the values of a
// chart that depends on it stand.
const chart = "prometheus-adapter"

// chartRules are the rules in the values of the chart.
type chartRules struct {
	Default  *bool          `yaml:"default"`
	Custom   []rule         `yaml:"custom"`
	Existing string         `yaml:"existing"`
	External []rule         `yaml:"external"`
	Resource *resourceRules `yaml:"resource"`
}

// isValues: the rules are a list in a configuration, and a mapping in the chart's values.
func isValues(document *yaml.Node) bool {
	if at(document, chart) != nil {
		return true
	}
	rules := at(document, "rules")
	return rules != nil && rules.Kind == yaml.MappingNode
}

func inValues(document *yaml.Node) (*found, error) {
	if nested := at(document, chart); nested != nil {
		document = nested
	}
	f := &found{where: "(values of its Helm chart)"}
	var rules chartRules
	if node := at(document, "rules"); node != nil {
		if err := decodeNode(node, &rules); err != nil {
			return nil, fmt.Errorf("rules in the values of the Helm chart: %w", err)
		}
	}
	f.config = config{Rules: rules.Custom, ExternalRules: rules.External}
	// The chart's own default is an empty mapping, which means none.
	if rules.Resource != nil && (rules.Resource.CPU.ContainerQuery != "" || rules.Resource.Memory.ContainerQuery != "") {
		f.config.ResourceRules = rules.Resource
	}
	const rendered = "import what the cluster has: kubectl get configmap -o yaml, then kubectl metrics import adapter-config"
	switch {
	case rules.Existing != "":
		f.remarks = append(f.remarks, fmt.Sprintf("rules.existing: the rules in force are in the ConfigMap %s, not in these values; %s", rules.Existing, rendered))
	case rules.Default == nil || *rules.Default:
		f.remarks = append(f.remarks, "rules.default: the rules that the chart adds by itself are not in its values, and so not here; if you need them, "+rendered)
	}
	prometheus := at(document, "prometheus")
	f.source.URL = stringAt(prometheus, "url")
	if port := stringAt(prometheus, "port"); f.source.URL != "" && port != "" && port != "0" {
		f.source.URL += ":" + port
	}
	if path := stringAt(prometheus, "path"); f.source.URL != "" {
		f.source.URL += path
	}
	if relist := stringAt(document, "metricsRelistInterval"); relist != "" {
		f.source.takeArguments([]string{"--metrics-relist-interval=" + relist})
	}
	if extra := at(document, "extraArguments"); extra != nil {
		var args []string
		for _, arg := range extra.Content {
			args = append(args, strings.TrimSpace(arg.Value))
		}
		f.source.takeArguments(args)
	}
	return f, nil
}
