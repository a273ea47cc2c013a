// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart generates the templates of charts/metrics-backend-operator from config/,
// so that kubectl apply -k and helm install create the same objects, and the comments on
// RBAC rules are written once. It processes text, to keep comments; test/chart compares
// the result with kustomize's, object by object.
//
// It also makes config/monitoring/prometheusrule.yaml from rules.yaml beside it.
//
// Usage, in the repository's root: go run ./hack/chart
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// templates is the folder of the generated files, which start with made. Other files there
// are written by hand.
const (
	templates = "charts/metrics-backend-operator/templates"
	made      = "{{- /* Made by hack/chart from "
	header    = made + "%s: change it there, and run make generate. */ -}}\n"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "make the chart's templates from config/:", err)
		os.Exit(1)
	}
}

// write generates all templates below root, and removes those whose source is gone.
func write(root string) error {
	rule, err := prometheusRule(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, ruleFile), []byte(rule), 0o644); err != nil {
		return err
	}
	wanted, err := render(root)
	if err != nil {
		return err
	}
	dir := filepath.Join(root, templates)
	present, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range present {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(content), made) && wanted[filepath.Base(path)] == "" {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for name, content := range wanted {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render returns the templates by file name.
func render(root string) (map[string]string, error) {
	sources, err := sources(root)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, source := range sources {
		content, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			return nil, err
		}
		name, template, err := templateOf(source, string(content))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if name == "" {
			continue
		}
		if all[name] != "" {
			return nil, fmt.Errorf("%s: another file makes %s too", source, name)
		}
		all[name] = fmt.Sprintf(header, source) + template
	}
	return all, nil
}
