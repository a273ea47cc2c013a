// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// object names an object of a manifest, which may leave its namespace out.
type object struct{ namespace, name string }

func (o object) String() string { return strings.TrimPrefix(o.namespace+"/"+o.name, "/") }

// deployment is one that runs prometheus-adapter.
type deployment struct {
	object
	args []string
}

// adapters are the Deployments that run with the configuration: those that mount its
// ConfigMap, and where none does, those that look like prometheus-adapter. Others in the
// namespace may ask a Prometheus of theirs, by a flag of the same name.
func (f *found) adapters(documents []*yaml.Node) []deployment {
	var mounting, alike []deployment
	for _, document := range documents {
		metadata, pod := at(document, "metadata"), at(at(at(document, "spec"), "template"), "spec")
		d := deployment{object: object{stringAt(metadata, "namespace"), stringAt(metadata, "name")}}
		isAlike := false
		for _, container := range list(pod, "containers") {
			args := slices.Concat(scalars(container, "command"), scalars(container, "args"))
			isAlike = isAlike || strings.Contains(stringAt(container, "image"), "prometheus-adapter") || slices.ContainsFunc(args, func(arg string) bool {
				name, _, _ := strings.Cut(arg, "=")
				return name == "--config" || name == "-config"
			})
			d.args = append(d.args, args...)
		}
		sameNamespace := d.namespace == f.configMap.namespace || d.namespace == "" || f.configMap.namespace == ""
		switch {
		case f.configMap.name != "" && sameNamespace && mounts(pod, f.configMap.name):
			mounting = append(mounting, d)
		case isAlike:
			alike = append(alike, d)
		}
	}
	if len(mounting) > 0 {
		return mounting
	}
	return alike
}

// mounts tells whether a volume of the pods is the ConfigMap, or has a part of it.
func mounts(pod *yaml.Node, configMap string) bool {
	return slices.ContainsFunc(list(pod, "volumes"), func(volume *yaml.Node) bool {
		return stringAt(at(volume, "configMap"), "name") == configMap ||
			slices.ContainsFunc(list(at(volume, "projected"), "sources"), func(source *yaml.Node) bool {
				return stringAt(at(source, "configMap"), "name") == configMap
			})
	})
}

// list is what a sequence holds, none where there is no sequence.
func list(node *yaml.Node, key string) []*yaml.Node {
	if found := at(node, key); found != nil && found.Kind == yaml.SequenceNode {
		return found.Content
	}
	return nil
}

func scalars(node *yaml.Node, key string) []string {
	var all []string
	for _, one := range list(node, key) {
		all = append(all, one.Value)
	}
	return all
}
