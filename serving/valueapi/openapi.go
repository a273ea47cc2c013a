// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package valueapi

import (
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// OpenAPIDefinitions returns generated definitions of an API group's types. The
// generator names types of packages that it does not generate by their Go path: so that
// these need not be generated again for each API group, they are named here as their own
// definitions are.
func OpenAPIDefinitions(generated common.GetOpenAPIDefinitions, ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	definitions := generated(func(name string) spec.Ref { return ref(modelName(name)) })
	for _, d := range definitions {
		for i, name := range d.Dependencies {
			d.Dependencies[i] = modelName(name)
		}
	}
	return definitions
}

func modelName(name string) string {
	if !strings.Contains(name, "/") {
		return name // of the model already
	}
	return util.ToRESTFriendlyName(name)
}
