// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"os"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// requireValid fails unless kube-apiserver would take a MetricsBackend as it is: by the
// schema of the CRD and its rules, without unknown fields.
func requireValid(t *testing.T, manifest string) {
	t.Helper()
	text, err := os.ReadFile("../../config/crd/bases/metricsbackend.io_metricsbackends.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	if unknown := pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		t.Errorf("unknown fields: %q", unknown)
	}
	defaulting.Default(object, structural)
	if errs := validation.ValidateCustomResource(nil, object, validator); len(errs) > 0 {
		t.Errorf("the schema refuses it: %v", errs.ToAggregate())
	}
	if errs, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).
		Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget); len(errs) > 0 {
		t.Errorf("its rules refuse it: %v", errs.ToAggregate())
	}
}
