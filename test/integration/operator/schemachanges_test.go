// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// schemaChange sets a field of a spec, or several, to values that its schema allows, or not.
type schemaChange struct {
	changed []map[string]any
	// fields are the names of all fields in changed.
	fields []string
	spec   map[string]any
}

// specSchema returns the schema of the spec of a CRD in a file.
func specSchema(t *testing.T, path string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(body, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	return &spec
}

// texts are values of strings. The schema's pattern, length and format choose among them.
var texts = []string{
	"a", "metrics", "Always", "1", "10s", "30s", "1m", "2m30s", "24h", "100m", "64Mi", "2Gi", "10.0.0.0/8", "*", "up", "sum(up)",
	"https://prometheus.monitoring.svc:9090", "http://127.0.0.1:1", imageV1beta1, imageMissing, "v1", "v1beta1", "1.5", "info",
	"example.com/key", "", "not a value", "-5s", "0", "999999h", "-1Gi", "ftp://x", "A_B",
}

// generator draws changes by a seed.
type generator struct{ *rand.Rand }

// paths returns the paths of all fields below a schema, objects of its lists included.
func paths(prefix []string, s apiextensionsv1.JSONSchemaProps) [][]string {
	switch {
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		return append(paths(prefix, *s.Items.Schema), prefix)
	case len(s.Properties) == 0:
		return [][]string{prefix}
	}
	var all [][]string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(all, paths(append(slices.Clone(prefix), name), s.Properties[name])...)
	}
	return append(all, prefix)
}

// value returns a value with the field at the path, and those that must stand beside it.
func (g generator) value(s apiextensionsv1.JSONSchemaProps, path []string) any {
	switch {
	case s.Type == "array":
		if s.Items == nil || s.Items.Schema == nil {
			return []any{}
		}
		return []any{g.value(*s.Items.Schema, path)}
	case len(s.Properties) > 0:
		object := map[string]any{}
		for _, name := range s.Required {
			object[name] = g.value(s.Properties[name], nil)
		}
		if len(path) > 0 {
			object[path[0]] = g.value(s.Properties[path[0]], path[1:])
		}
		return object
	case s.Type == "object":
		return map[string]any{pick(g, texts[:3]): pick(g, texts[:3])}
	}
	return g.leaf(s)
}

// leaf returns a value of a field without fields, in one case of four one that the schema rejects.
func (g generator) leaf(s apiextensionsv1.JSONSchemaProps) any {
	wrong := g.IntN(4) == 0
	switch {
	case s.Type == "boolean":
		return g.IntN(2) == 0
	case s.Type == "integer" || s.Type == "number":
		low, high := int64(0), int64(5)
		if s.Minimum != nil {
			low = int64(*s.Minimum)
		}
		if s.Maximum != nil {
			high = min(int64(*s.Maximum), low+5)
		}
		if wrong {
			return low - 1 - g.Int64N(10)
		}
		return low + g.Int64N(max(high, low)-low+1)
	case len(s.Enum) > 0 && !wrong:
		var value any
		_ = yaml.Unmarshal(pick(g, s.Enum).Raw, &value)
		return value
	}
	fits := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
		ok := (s.MinLength == nil || int64(len(text)) >= *s.MinLength) && (s.MaxLength == nil || int64(len(text)) <= *s.MaxLength)
		if pattern, err := regexp.Compile(s.Pattern); err == nil {
			ok = ok && pattern.MatchString(text)
		}
		return ok == wrong
	})
	if len(fits) == 0 {
		fits = texts
	}
	return pick(g, fits)
}

func pick[T any](g generator, all []T) T { return all[g.IntN(len(all))] }

// change returns a spec like the base with one or two fields changed.
func (g generator) change(schema *apiextensionsv1.JSONSchemaProps, base map[string]any) schemaChange {
	c := schemaChange{spec: base}
	all := paths(nil, *schema)
	for range 1 + g.IntN(2) {
		changed := g.value(*schema, pick(g, all[:len(all)-1])).(map[string]any)
		c.fields = append(c.fields, fieldsOf(changed)...)
		c.changed, c.spec = append(c.changed, changed), merged(c.spec, changed)
	}
	return c
}

// fieldsOf returns the names of all fields of a value.
func fieldsOf(value any) (names []string) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			names = append(append(names, name), fieldsOf(field)...)
		}
	case []any:
		for _, item := range value {
			names = append(names, fieldsOf(item)...)
		}
	}
	return names
}

// merged returns the base with the fields of over.
func merged(base, over map[string]any) map[string]any {
	out := maps.Clone(base)
	for key, value := range over {
		below, isObject := value.(map[string]any)
		before, wasObject := out[key].(map[string]any)
		if isObject && wasObject {
			value = merged(before, below)
		}
		out[key] = value
	}
	return out
}
