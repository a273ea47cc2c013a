// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// base is the kustomization that kubectl apply -k installs.
const base = "config/default"

// sources returns the files of base and of monitoring, through their kustomizations.
func sources(root string) ([]string, error) {
	files, err := resources(root, base)
	if err != nil {
		return nil, err
	}
	optional, err := resources(root, monitoring)
	return append(files, optional...), err
}

func resources(root, dir string) ([]string, error) {
	file := path.Join(dir, "kustomization.yaml")
	content, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	var kustomization struct {
		Resources  []string `json:"resources"`
		Components []string `json:"components"`
		// The comparison in test/chart detects other fields of a kustomization.
	}
	if err := yaml.Unmarshal(content, &kustomization); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var files []string
	for _, resource := range append(kustomization.Resources, kustomization.Components...) {
		resource = path.Join(dir, resource)
		info, err := os.Stat(filepath.Join(root, resource))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case info.IsDir():
			below, err := resources(root, resource)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
		default:
			files = append(files, resource)
		}
	}
	return files, nil
}
