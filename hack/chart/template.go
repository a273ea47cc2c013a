// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

const (
	// namespace is the operator's namespace in config/; in a chart it is the release's.
	namespace        = "metrics-backend-system"
	releaseNamespace = "{{ $.Release.Namespace }}"
)

// labels returns the chart's labels of an object, with the further ones of a value, or none.
func labels(further string) string {
	return "  labels:\n    {{- include \"metrics-backend-operator.labels\" (list $ " + further + ") | nindent 4 }}\n"
}

// replacement replaces a fixed text of config/ by a value. The text must occur exactly
// once, so that a change of config/ that a template would miss is an error.
type replacement struct{ old, new string }

// templateOf returns the template for a source, or an empty name if a chart does not need
// the source.
func templateOf(source, content string) (name, template string, err error) {
	name = path.Base(path.Dir(source)) + "-" + path.Base(source)
	if source == ruleFile {
		template, err = ruleTemplate(content)
		return name, template, err
	}
	if strings.Contains(content, "{{") {
		return "", "", errors.New("holds {{, which a template would evaluate")
	}
	switch {
	case source == "config/manager/namespace.yaml", source == monitoring+"/token.yaml":
		// Helm creates the release's namespace (--create-namespace). The other template is written by hand.
		return "", "", nil
	case strings.HasPrefix(source, "config/crd/bases/"):
		_, kind, _ := strings.Cut(path.Base(source), "_")
		template, err = crd(content)
		return "crd-" + kind, template, err
	}
	further := "dict"
	if source == monitoring+"/servicemonitor.yaml" {
		further = "$.Values.serviceMonitor.labels"
	}
	if content, err = labelled(content, further); err != nil {
		return "", "", err
	}
	switch source {
	case "config/manager/deployment.yaml":
		content, err = replace(content, deployment)
	case "config/manager/resourcequota.yaml":
		content = "{{- if and $.Values.resourceQuota.enabled (has $.Values.priorityClassName (list \"system-cluster-critical\" \"system-node-critical\")) }}\n" +
			content + "{{- end }}\n"
	case "config/rbac/serviceaccount.yaml":
		content += "  {{- with $.Values.serviceAccount.annotations }}\n  annotations:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n"
	case "config/rbac/serving-namespace/role.yaml":
		content, err = inServingNamespaces(content)
	case monitoring + "/servicemonitor.yaml":
		content, err = monitorTemplate(content)
	}
	return name, strings.ReplaceAll(content, namespace, releaseNamespace), err
}

// crd makes a CustomResourceDefinition optional, and by default keeps it when the release
// is uninstalled. It is a template, since Helm never upgrades files in crds/.
func crd(content string) (string, error) {
	content, err := replace(content, []replacement{
		{"\nmetadata:\n  annotations:\n", "\nmetadata:\n" + labels("dict") + "  annotations:\n" +
			"    {{- if $.Values.crds.keep }}\n    helm.sh/resource-policy: keep\n    {{- end }}\n"},
	})
	return "{{- if $.Values.crds.enabled }}\n" + content + "{{- end }}\n", err
}

// labelled adds the chart's labels, and the further ones of a value, to each object.
func labelled(content, further string) (string, error) {
	documents := strings.Split(content, "\n---\n")
	for i, document := range documents {
		const own = "\n  labels:\n"
		at := strings.Index(document, own)
		if at < 0 || strings.Contains(document[:at], "\nspec:") {
			return "", fmt.Errorf("object %d has no metadata.labels", i+1)
		}
		documents[i] = document[:at+1] + labels(further) + document[at+len(own):]
	}
	return strings.Join(documents, "\n---\n"), nil
}

// inServingNamespaces repeats the objects for each namespace in which serving may run.
func inServingNamespaces(content string) (string, error) {
	const name = "\n  name: metrics-backend-operator-serving\n  labels:\n"
	if objects := strings.Count(content, "\nmetadata:\n"); strings.Count(content, name) != objects {
		return "", fmt.Errorf("not all %d objects begin with %q", objects, name)
	}
	content = strings.ReplaceAll(content, name, strings.Replace(name, "\n  labels:", "\n  namespace: {{ $namespace }}\n  labels:", 1))
	return "{{- range $namespace := concat (list $.Release.Namespace) $.Values.namespaces | uniq }}\n---\n" + content + "{{- end }}\n", nil
}

func replace(content string, replacements []replacement) (string, error) {
	var errs []error
	for _, r := range replacements {
		if n := strings.Count(content, r.old); n != 1 {
			errs = append(errs, fmt.Errorf("holds %d times, not once: %q", n, r.old))
			continue
		}
		content = strings.Replace(content, r.old, r.new, 1)
	}
	return content, errors.Join(errs...)
}
