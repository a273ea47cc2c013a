// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"fmt"
	"os"
	"sync"
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
	for _, refusal := range refusals(t, manifest) {
		t.Error(refusal)
	}
}

// checks are those of the CRD.
type checks struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// crdChecks are compiled once, which takes a while.
var crdChecks = sync.OnceValues(func() (*checks, error) {
	text, err := os.ReadFile("../../config/crd/bases/metricsbackend.io_metricsbackends.yaml")
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	return &checks{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
})

// refusals are what kube-apiserver would say against a MetricsBackend.
func refusals(t *testing.T, manifest string) (all []string) {
	t.Helper()
	crd, err := crdChecks()
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &object); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	if unknown := pruning.PruneWithOptions(object, crd.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		all = append(all, fmt.Sprintf("unknown fields: %q", unknown))
	}
	defaulting.Default(object, crd.structural)
	if errs := validation.ValidateCustomResource(nil, object, crd.validator); len(errs) > 0 {
		all = append(all, fmt.Sprintf("the schema refuses it: %v", errs.ToAggregate()))
	}
	if errs, _ := crd.rules.Validate(t.Context(), nil, crd.structural, object, nil, celconfig.RuntimeCELCostBudget); len(errs) > 0 {
		all = append(all, fmt.Sprintf("its rules refuse it: %v", errs.ToAggregate()))
	}
	return all
}
