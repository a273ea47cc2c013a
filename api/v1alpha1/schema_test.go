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

// TestSchemaAndValidationRefuseTheSameNames: kube-apiserver validates with the lists of names in the schema's rules,
// serving --backend-file with those here.
func TestSchemaAndValidationRefuseTheSameNames(t *testing.T) {
	source := readSchema(t, "metricsbackends").Properties["spec"].Properties["sources"].Items.Schema.Properties["prometheus"]
	header, parameter := source.Properties["headers"].Items.Schema, source.Properties["queryParameters"].Items.Schema
	tests := map[string]struct {
		rules apiextensionsv1.ValidationRules
		want  []string
	}{
		"headers of the client":    {header.Properties["name"].XValidations, lowerCase(ownHeaders)},
		"headers with credentials": {header.XValidations, lowerCase(credentialHeaders)},
		"parameters":               {parameter.Properties["name"].XValidations, reservedParameters},
	}
	quoted := regexp.MustCompile(`'([^']*)'`)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, rule := range tc.rules {
				for _, match := range quoted.FindAllStringSubmatch(rule.Rule, -1) {
					got = append(got, match[1])
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(slices.Sorted(slices.Values(tc.want)), got); diff != "" {
				t.Errorf("names in the schema (-validation +schema):\n%s", diff)
			}
		})
	}
}

// TestSchemaAndValidationLimitRoutes: the schema has the limits and groups that validation has.
func TestSchemaAndValidationLimitRoutes(t *testing.T) {
	spec := readSchema(t, "metricsbackends").Properties["spec"].Properties
	for _, section := range []string{"customMetrics", "externalMetrics"} {
		if got := spec[section].Properties["routes"].MaxItems; got == nil || *got != MaxRoutes {
			t.Errorf("maxItems of %s.routes: %v, want %d", section, got, MaxRoutes)
		}
	}
	var groups []MetricsAPIGroup
	for _, value := range spec["sources"].Items.Schema.Properties["metricsAPI"].Properties["group"].Enum {
		groups = append(groups, MetricsAPIGroup(strings.Trim(string(value.Raw), `"`)))
	}
	if diff := cmp.Diff([]MetricsAPIGroup{CustomMetricsGroup, ExternalMetricsGroup}, groups); diff != "" {
		t.Errorf("groups of metricsAPI (-validation +schema):\n%s", diff)
	}
}

func lowerCase(names []string) []string {
	var lower []string
	for _, name := range names {
		lower = append(lower, strings.ToLower(name))
	}
	return lower
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
