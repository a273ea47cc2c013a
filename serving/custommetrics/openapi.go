// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package custommetrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/metricsbackend/metrics-backend-operator/serving/valueapi"
)

// The definitions cover custom.metrics.k8s.io alone. What its types refer to of the
// API machinery is among those of package resourcemetrics.
//
//go:generate go tool -modfile=../../hack/tools/go.mod openapi-gen --go-header-file ../../hack/boilerplate.go.txt --output-dir . --output-pkg github.com/metricsbackend/metrics-backend-operator/serving/custommetrics --output-file zz_generated.openapi.go --report-filename /dev/null k8s.io/metrics/pkg/apis/custom_metrics/v1beta1 k8s.io/metrics/pkg/apis/custom_metrics/v1beta2

// OpenAPIDefinitions returns the definitions of the API group's types, to be merged
// with those of package resourcemetrics.
func OpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := valueapi.OpenAPIDefinitions(GetOpenAPIDefinitions, ref)
	definitions[corev1.ObjectReference{}.OpenAPIModelName()] = objectReference()
	return definitions
}

// objectReference is the one type of the core API that values refer to, instead of a
// generated definition of that whole API.
func objectReference() common.OpenAPIDefinition {
	properties := map[string]spec.Schema{}
	for name, description := range map[string]string{
		"kind":            "Kind of the object.",
		"namespace":       "Namespace of the object.",
		"name":            "Name of the object.",
		"uid":             "UID of the object.",
		"apiVersion":      "API version of the object.",
		"resourceVersion": "Version of the object that is meant, if any.",
		"fieldPath":       "Part of the object that is meant instead of the whole, if any.",
	} {
		properties[name] = *spec.StringProperty().WithDescription(description)
	}
	return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{
		Description: "ObjectReference tells which object is meant.",
		Type:        spec.StringOrArray{"object"},
		Properties:  properties,
	}}}
}
