// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package crdschema

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Each way in which a schema can refuse an object. test/integration/operator has the rules of these CRDs.
func TestDefaultAndValidate(t *testing.T) {
	s := compiled(t, "externalmetrics")
	for name, tc := range map[string]struct {
		spec string
		want string
	}{
		"valid":            {spec: "{query: up}"},
		"a null":           {spec: "{query: up, fallback: null}"},
		"an unknown field": {"{query: up, quarry: down}", "spec.quarry: Forbidden: unknown field"},
		"a missing field":  {"{}", "spec.query: Required value"},
		"another type":     {"{query: 1}", "spec.query: Invalid value"},
		"a pattern":        {"{query: up, interval: 5 minutes}", "spec.interval: Invalid value"},
		"a value":          {"{query: up, invalidValuesPolicy: Guess}", `spec.invalidValuesPolicy: Unsupported value: "Guess"`},
		"a number":         {"{query: up, fallback: {afterFailures: 101, lastValue: {}}}", "spec.fallback.afterFailures: Invalid value: 101"},
		"a rule":           {"{query: up, fallback: {}}", "fallback needs value (a fixed one) or lastValue"},
	} {
		t.Run(name, func(t *testing.T) {
			object := decoded(t, "{metadata: {name: a, namespace: b}, spec: "+tc.spec+"}")
			errs := s.DefaultAndValidate(t.Context(), object)
			if tc.want == "" != (len(errs) == 0) || len(errs) > 0 && !strings.Contains(errs.ToAggregate().Error(), tc.want) {
				t.Errorf("errors %v, want %q", errs, tc.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	s := compiled(t, "metricsbackends")
	object := decoded(t, "{metadata: {name: a}, spec: {resourceMetrics: {scrape: {interval: 20s}}}}")
	if errs := s.DefaultAndValidate(t.Context(), object); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	scrape, _, _ := unstructured.NestedMap(object, "spec", "resourceMetrics", "scrape")
	delete(scrape, "addressTypes")
	if diff := cmp.Diff(map[string]any{"interval": "20s", "timeout": "10s", "maxConcurrent": int64(64), "maxResponseSize": "16Mi"}, scrape); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	object = decoded(t, "{metadata: {name: a}, spec: {resourceMetrics: {versions: [v1, v1]}}}")
	if errs := s.DefaultAndValidate(t.Context(), object); len(errs) != 1 || errs[0].Field != "spec.resourceMetrics.versions[1]" {
		t.Errorf("a version twice: %v", errs)
	}
}

func TestCompileNoCRD(t *testing.T) {
	for manifest, want := range map[string]string{"{": "decode a CRD", "kind: Pod": "no version with a schema"} {
		if _, err := Compile([]byte(manifest)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", manifest, err, want)
		}
	}
}

// compiled returns the schema of one of this project's CRDs.
func compiled(t *testing.T, plural string) *Schema {
	t.Helper()
	manifest, err := os.ReadFile("../../config/crd/bases/metricsbackend.io_" + plural + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func decoded(t *testing.T, manifest string) map[string]any {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}
