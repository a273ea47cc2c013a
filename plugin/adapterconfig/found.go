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
		configs []*found
		args    []string
	)
	for _, document := range documents {
		var f *found
		switch kind := stringAt(document, "kind"); {
		case kind == "ConfigMap":
			f, err = inConfigMap(document)
		case kind == "Deployment":
			args = append(args, arguments(document)...)
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
	switch len(configs) {
	case 0:
		return nil, fmt.Errorf("%s holds no configuration of prometheus-adapter: it is a YAML document "+
			"with one of %s, a ConfigMap of such, or the values of its Helm chart", name, strings.Join(sections, ", "))
	case 1:
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
	f.source.takeArguments(args)
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

// inConfigMap returns nil where the ConfigMap holds something else.
func inConfigMap(document *yaml.Node) (*found, error) {
	data := at(document, "data")
	if data == nil {
		return nil, nil
	}
	var f *found
	object := strings.TrimPrefix(stringAt(at(document, "metadata"), "namespace")+"/"+stringAt(at(document, "metadata"), "name"), "/")
	for i := 0; i+1 < len(data.Content); i += 2 {
		key, value := data.Content[i].Value, data.Content[i+1].Value
		var inner yaml.Node
		if yaml.Unmarshal([]byte(value), &inner) != nil || inner.Kind != yaml.DocumentNode ||
			inner.Content[0].Kind != yaml.MappingNode || checkSections(inner.Content[0]) != nil {
			continue // another file; a broken configuration is none
		}
		where := fmt.Sprintf("(ConfigMap %s, key %s)", object, key)
		if f != nil {
			return nil, fmt.Errorf("the ConfigMap %s holds several configurations: keep one of its keys", object)
		}
		f = &found{where: where}
		if err := decodeStrict([]byte(value), &f.config); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	return f, nil
}

// arguments are those of all containers of a Deployment.
func arguments(document *yaml.Node) []string {
	var args []string
	containers := at(at(at(at(document, "spec"), "template"), "spec"), "containers")
	if containers == nil {
		return nil
	}
	for _, container := range containers.Content {
		for _, key := range []string{"command", "args"} {
			if list := at(container, key); list != nil {
				for _, arg := range list.Content {
					args = append(args, arg.Value)
				}
			}
		}
	}
	return args
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
