// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd has the manifests of the CRDs.
package crd

import "embed"

//go:embed bases
var files embed.FS

// Manifest returns the manifest of the CRD with a plural name, such as metricsbackends.
func Manifest(plural string) ([]byte, error) {
	return files.ReadFile("bases/metricsbackend.io_" + plural + ".yaml")
}
