// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// found is what was read from a file.
type found struct {
	config config
	// where it stood, for messages.
	where string
	// source is what else the file says of Prometheus.
	source source
	// configMap is the one that holds it, if one does.
	configMap object
	// remarks on what is not in the file.
	remarks []string
}

// sections are the keys of prometheus-adapter's configuration.
var sections = []string{"rules", "externalRules", "resourceRules"}

// find reads prometheus-adapter's configuration: by itself, in a ConfigMap (alone, in a
// list or among other manifests), or in the values of its Helm chart. Arguments of a
// Deployment beside it tell of the source.
func find(text []byte, name string) (*found, error) {
	documents, err := split(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	var (
		configs     []*found
		broken      []error
		deployments []*yaml.Node
	)
	for _, document := range documents {
		var f *found
		switch kind := stringAt(document, "kind"); {
		case kind == "ConfigMap":
			var wrong []error
			f, wrong, err = inConfigMap(document)
			broken = append(broken, wrong...)
		case kind == "Deployment":
			deployments = append(deployments, document)
		case kind != "":
			// Some other manifest.
		case isValues(document):
			f, err = inValues(document)
		default:
			f = &found{}
			if err = checkSections(document); err == nil {
				err = decodeDocument(text, documents, document, &f.config)
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
		f.remarks = append(f.remarks, "left out, since it is no configuration of prometheus-adapter: "+err.Error())
	}
	f.source.takeDeployments(f.adapters(deployments))
	return f, nil
}

// split reads all documents, those in lists too.
func split(text []byte) ([]*yaml.Node, error) {
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
		items := at(root, "items")
		if strings.HasSuffix(stringAt(root, "kind"), "List") && items != nil {
			documents = append(documents, items.Content...)
			continue
		}
		documents = append(documents, root)
	}
}

// decodeDocument reads a file that is one document from its own text, for the numbers of
// the lines in errors.
func decodeDocument(text []byte, documents []*yaml.Node, document *yaml.Node, into *config) error {
	if len(documents) == 1 {
		return decodeStrict(text, into)
	}
	return decodeNode(document, into)
}

func checkSections(document *yaml.Node) error {
	for _, section := range sections {
		if at(document, section) != nil {
			return nil
		}
	}
	return fmt.Errorf("line %d: none of %s", document.Line, strings.Join(sections, ", "))
}

// inConfigMap returns nil where the ConfigMap holds something else. What only looks like
// a configuration is told in wrong: namespaces hold other files with rules, too.
func inConfigMap(document *yaml.Node) (f *found, wrong []error, err error) {
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
			inner.Content[0].Kind != yaml.MappingNode || checkSections(inner.Content[0]) != nil {
			continue // another file; a broken configuration is none
		}
		if at(inner.Content[0], "apiVersion") != nil || at(inner.Content[0], "kind") != nil {
			continue // some API's object, such as an audit policy
		}
		one := found{where: fmt.Sprintf("(ConfigMap %s, key %s)", of, key), configMap: of}
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

// at is the value of a key in a mapping, nil where there is none.
func at(node *yaml.Node, key string) *yaml.Node {
	if node == nil {
		return nil
	}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
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
