// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestSchemasAreBounded: whoever may create metrics in one namespace cannot make one of them
// larger than the schema says, but for its metadata.
func TestSchemasAreBounded(t *testing.T) {
	// otherwise are fields with another bound than the keywords of a schema.
	otherwise := []string{
		"spec.fallback.value", // its pattern
		"spec.labels.*",       // a rule: the error of maxLength does not say what selectors need
	}
	for _, plural := range []string{"custommetrics", "externalmetrics"} {
		var unbounded []string
		for name, s := range readSchema(t, plural).Properties {
			if name == "spec" || name == "status" {
				unbounded = append(unbounded, unboundedIn(name, &s)...)
			}
		}
		unbounded = slices.DeleteFunc(unbounded, func(field string) bool { return slices.Contains(otherwise, field) })
		slices.Sort(unbounded)
		if len(unbounded) > 0 {
			t.Errorf("unbounded fields of %s: %q", plural, unbounded)
		}
	}
}

// The plugin leaves out the values of the headers that the schema refuses values of.
func TestCredentialHeadersAreTheSchemas(t *testing.T) {
	source := readSchema(t, "metricsbackends").Properties["spec"].Properties["sources"].Items.Schema.Properties["prometheus"]
	var want, got []string
	for _, name := range credentialHeaders {
		want = append(want, strings.ToLower(name))
	}
	for _, rule := range source.Properties["headers"].Items.Schema.XValidations {
		for _, match := range regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(rule.Rule, -1) {
			got = append(got, match[1])
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-credentialHeaders +schema):\n%s", diff)
	}
}

// readSchema returns the schema of a kind, by its plural name.
func readSchema(t *testing.T, plural string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	content, err := os.ReadFile("../../config/crd/bases/metricsbackend.io_" + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// unboundedIn returns the fields in a schema whose values can have any size.
func unboundedIn(path string, s *apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	switch {
	case s.XIntOrString, s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time":
		all = append(all, path)
	case s.Type == "array":
		if s.MaxItems == nil {
			all = append(all, path)
		}
		all = append(all, unboundedIn(path+"[]", s.Items.Schema)...)
	case s.AdditionalProperties != nil:
		if s.MaxProperties == nil {
			all = append(all, path)
		}
		all = append(all, unboundedIn(path+".*", s.AdditionalProperties.Schema)...)
	}
	for name, property := range s.Properties {
		all = append(all, unboundedIn(path+"."+name, &property)...)
	}
	return all
}
