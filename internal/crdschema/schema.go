// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crdschema does with an object what kube-apiserver does with it by the schema of its CRD.
package crdschema

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// Schema is that of a CRD.
type Schema struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

// Compile returns the schema of the first version in the manifest of a CRD. It takes about a tenth of a second.
func Compile(manifest []byte) (*Schema, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(manifest, &definition); err != nil {
		return nil, fmt.Errorf("decode a CRD: %w", err)
	}
	if len(definition.Spec.Versions) == 0 || definition.Spec.Versions[0].Schema == nil {
		return nil, errors.New("decode a CRD: it has no version with a schema")
	}
	var properties apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &properties, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of %s: %w", definition.Name, err)
	}
	structural, err := structuralschema.NewStructural(&properties)
	if err != nil {
		return nil, fmt.Errorf("compile the schema of %s: %w", definition.Name, err)
	}
	validator, _, err := validation.NewSchemaValidator(&properties)
	if err != nil {
		return nil, fmt.Errorf("compile the schema of %s: %w", definition.Name, err)
	}
	return &Schema{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// DefaultAndValidate sets the defaults of an object that is created, and returns why kube-apiserver would refuse it. Integers of the
// object are of type int64.
func (s *Schema) DefaultAndValidate(ctx context.Context, object map[string]any) field.ErrorList {
	var errs field.ErrorList
	for _, path := range pruning.PruneWithOptions(object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errs = append(errs, field.Forbidden(field.NewPath(path), "unknown field"))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
	errs = append(errs, validation.ValidateCustomResource(nil, object, s.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(errs) > 0 {
		return errs // rules may fail by what the schema refuses
	}
	errs, _ = s.rules.Validate(ctx, nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}
