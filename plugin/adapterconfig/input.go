// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// input is what was read from a file.
type input struct {
	config config
	// where is the origin of config, for messages.
	where  string
	source source
	// configMap is the ConfigMap with config, if any.
	configMap object
	// remarks are about differences, and leftOut is about what is not in the MetricsBackend.
	remarks, leftOut []string
}

// sections are the keys of prometheus-adapter's configuration.
var sections = []string{"rules", "externalRules", "resourceRules"}

// find reads prometheus-adapter's configuration: a file of its own, a ConfigMap (alone, in a
// list or among other manifests), or the values of its Helm chart. The source comes from the
// arguments of Deployments in the same file.
func find(text []byte, name string) (*input, error) {
	left := maxFile
	documents, err := split(text, &left)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	var (
		configs     []*input
		broken      []error
		deployments []*yaml.Node
	)
	for _, document := range documents {
		var f *input
		switch kind := stringAt(document, "kind"); {
		case kind == "ConfigMap":
			var wrong []error
			f, wrong, err = inConfigMap(document, &left)
			broken = append(broken, wrong...)
		case kind == "Deployment":
			deployments = append(deployments, document)
		case kind != "":
			// Some other manifest.
		case isValues(document):
			f, err = inValues(document)
		default:
			f = &input{}
			switch err = checkSections(document); {
			case err != nil:
			case len(documents) == 1: // from the original text, so that errors have the right line numbers
				err = decodeStrict(text, &f.config)
			default:
				err = decodeNode(document, &f.config)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if f != nil {
			configs = append(configs, f)
		}
	}
	switch {
	case len(configs) == 1:
	case len(configs) == 0 && len(broken) > 0:
		return nil, fmt.Errorf("read %s: %w", name, errors.Join(broken...))
	case len(configs) == 0:
		return nil, fmt.Errorf("%s holds no configuration of prometheus-adapter: it is a YAML document "+
			"with one of %s, a ConfigMap of such, or the values of its Helm chart", name, strings.Join(sections, ", "))
	default:
		var all []string
		for _, f := range configs {
			all = append(all, f.where)
		}
		return nil, fmt.Errorf("%s holds %d configurations (%s): keep one of them",
			name, len(configs), strings.Join(all, "; "))
	}
	f := configs[0]
	f.where = strings.TrimSpace(name + " " + f.where)
	for _, err := range broken {
		f.leftOut = append(f.leftOut, "left out, since it is no configuration of prometheus-adapter: "+err.Error())
	}
	f.source.readDeployments(f.adapters(deployments))
	return f, nil
}

// split returns all documents, with the items of lists, and without aliases, for which resolve takes from left.
func split(text []byte, left *int) ([]*yaml.Node, error) {
	var documents []*yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, err
		}
		root := &document
		if root.Kind == yaml.DocumentNode && len(root.Content) > 0 {
			root = root.Content[0]
		}
		if root.Kind != yaml.MappingNode {
			if root.Tag == "!!null" {
				continue
			}
			return nil, fmt.Errorf("line %d: want a mapping", root.Line)
		}
		if root, err = resolve(root, false, left); err != nil {
			return nil, err
		}
		items := at(root, "items")
		if strings.HasSuffix(stringAt(root, "kind"), "List") && items != nil {
			documents = append(documents, items.Content...)
			continue
		}
		documents = append(documents, root)
	}
}

// resolve returns a node with its aliases written out, so that it can be read without the rest of its document. They may
// take no more than left bytes: a short file can name a long text many times, and an anchor can contain itself.
func resolve(node *yaml.Node, aliased bool, left *int) (*yaml.Node, error) {
	if node.Kind == yaml.AliasNode {
		node, aliased = node.Alias, true
	}
	if aliased {
		if *left -= 160 + len(node.Value); *left < 0 { // a node is 160 bytes
			return nil, fmt.Errorf("line %d: aliases make the file longer than %d MiB, or an anchor contains itself", node.Line, maxFile>>20)
		}
	}
	out := *node
	out.Anchor, out.Content = "", make([]*yaml.Node, len(node.Content))
	for i, child := range node.Content {
		var err error
		if out.Content[i], err = resolve(child, aliased, left); err != nil {
			return nil, err
		}
	}
	return &out, nil
}

func checkSections(document *yaml.Node) error {
	if slices.ContainsFunc(sections, func(section string) bool { return at(document, section) != nil }) {
		return nil
	}
	return fmt.Errorf("line %d: none of %s", document.Line, strings.Join(sections, ", "))
}

// inConfigMap returns nil if the ConfigMap has no configuration. Errors of files that only
// look like one are in wrong: namespaces have other files with rules, too.
func inConfigMap(document *yaml.Node, left *int) (f *input, wrong []error, err error) {
	data := at(document, "data")
	if data == nil {
		return nil, nil, nil
	}
	metadata := at(document, "metadata")
	of := object{namespace: stringAt(metadata, "namespace"), name: stringAt(metadata, "name")}
	for i := 0; i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i].Value, data.Content[i+1].Value
		var inner yaml.Node
		if yaml.Unmarshal([]byte(value), &inner) != nil || inner.Kind != yaml.DocumentNode ||
			inner.Content[0].Kind != yaml.MappingNode || checkSections(inner.Content[0]) != nil ||
			at(inner.Content[0], "apiVersion") != nil || at(inner.Content[0], "kind") != nil {
			continue // another file, such as an audit policy; a broken configuration is none
		}
		one := input{where: fmt.Sprintf("(ConfigMap %s, key %s)", of, key), configMap: of}
		if _, err := resolve(inner.Content[0], false, left); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", one.where, err)
		}
		if err := decodeStrict([]byte(value), &one.config); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", one.where, err))
			continue
		}
		if f != nil {
			return nil, nil, fmt.Errorf("the ConfigMap %s holds several configurations: keep one of its keys", of)
		}
		f = &one
	}
	return f, wrong, nil
}

// at returns the value of a key in a mapping, which may be one of a merged mapping, or nil.
func at(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch name := node.Content[i]; {
		case name.Value == key:
			return node.Content[i+1]
		case name.ShortTag() == "!!merge":
			merged = append(append(merged, node.Content[i+1]), list(node, name.Value)...)
		}
	}
	for _, m := range merged {
		if found := at(m, key); found != nil {
			return found
		}
	}
	return nil
}

func stringAt(node *yaml.Node, key string) string {
	if value := at(node, key); value != nil && value.Kind == yaml.ScalarNode && value.Tag != "!!null" {
		return value.Value
	}
	return ""
}

// chart is the name of prometheus-adapter's Helm chart, and the key of its values in charts
// that depend on it.
const chart = "prometheus-adapter"

// chartRules are the rules in the chart's values.
type chartRules struct {
	Default  *bool          `yaml:"default"`
	Custom   []rule         `yaml:"custom"`
	Existing string         `yaml:"existing"`
	External []rule         `yaml:"external"`
	Resource *resourceRules `yaml:"resource"`
}

// isValues reports whether a document is the chart's values: rules is a mapping there, and a
// list in a configuration.
func isValues(document *yaml.Node) bool {
	if at(document, chart) != nil {
		return true
	}
	rules := at(document, "rules")
	return rules != nil && rules.Kind == yaml.MappingNode
}

func inValues(document *yaml.Node) (*input, error) {
	if nested := at(document, chart); nested != nil {
		document = nested
	}
	f := &input{where: "(values of its Helm chart)"}
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
	const rendered = "import what the cluster has: kubectl get configmap -o yaml, then kubectl metrics-backend import prometheus-adapter"
	switch {
	case rules.Existing != "":
		f.leftOut = append(f.leftOut, fmt.Sprintf("rules.existing: the rules in force are in the ConfigMap %s, not in these values; %s", rules.Existing, rendered))
	case rules.Default == nil || *rules.Default:
		f.leftOut = append(f.leftOut, "rules.default: the rules that the chart adds by itself are not in its values, and so not here; if you need them, "+rendered)
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
		f.source.readArguments([]string{"--metrics-relist-interval=" + relist})
	}
	if extra := at(document, "extraArguments"); extra != nil {
		var args []string
		for _, arg := range extra.Content {
			args = append(args, strings.TrimSpace(arg.Value))
		}
		f.source.readArguments(args)
	}
	return f, nil
}
