// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package externalmetrics

import (
	"k8s.io/kube-openapi/pkg/common"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// The definitions cover external.metrics.k8s.io; those of metadata and quantities, to
// which they refer, are package resourcemetrics'.
//
//go:generate go tool -modfile=../../hack/tools/go.mod openapi-gen --go-header-file ../../hack/boilerplate.go.txt --output-dir . --output-pkg github.com/metricsbackend/metrics-backend-operator/serving/externalmetrics --output-file zz_generated.openapi.go --report-filename /dev/null k8s.io/metrics/pkg/apis/external_metrics/v1beta1

// OpenAPIDefinitions returns the definitions of the API group's types, to be merged
// with those of package resourcemetrics.
func OpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	return valueapi.OpenAPIDefinitions(GetOpenAPIDefinitions, ref)
}
