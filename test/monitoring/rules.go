// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring reads config/monitoring for tests: the rules of Prometheus, and the dashboard.
package monitoring

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Folder is the folder of the files, in the repository.
const Folder = "config/monitoring"

// Rule is an alert, or the rule of a record.
type Rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Group has the rules that are evaluated one after the other.
type Group struct {
	Name  string `json:"name"`
	Rules []Rule `json:"rules"`
}

// RuleFile is a file for Prometheus' rule_files.
type RuleFile struct {
	Groups []Group `json:"groups"`
}

// Rules reads rules.yaml in the repository at root.
func Rules(root string) (*RuleFile, error) {
	path := filepath.Join(root, Folder, "rules.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file RuleFile
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &file, nil
}

// All returns the rules of all groups.
func (f *RuleFile) All() []Rule {
	var all []Rule
	for _, g := range f.Groups {
		all = append(all, g.Rules...)
	}
	return all
}
