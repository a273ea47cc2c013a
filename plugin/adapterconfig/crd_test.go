// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"sync"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/config/crd"
	"github.com/metricsbackend/metrics-backend-operator/internal/crdschema"
)

// requireValid fails unless kube-apiserver would take a MetricsBackend as it is: by the
// schema of the CRD and its rules, without unknown fields.
func requireValid(t *testing.T, manifest string) {
	t.Helper()
	for _, refusal := range refusals(t, manifest) {
		t.Error(refusal)
	}
}

// schema is compiled once, which takes a while.
var schema = sync.OnceValues(func() (*crdschema.Schema, error) {
	manifest, err := crd.Manifest("metricsbackends")
	if err != nil {
		return nil, err
	}
	return crdschema.Compile(manifest)
})

// refusals are what kube-apiserver would say against a MetricsBackend.
func refusals(t *testing.T, manifest string) (all []string) {
	t.Helper()
	s, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	var object map[string]any
	if err := utiljson.Unmarshal(text, &object); err != nil {
		t.Fatalf("%v\n%s", err, manifest)
	}
	for _, err := range s.DefaultAndValidate(t.Context(), object) {
		all = append(all, "the CRD refuses it: "+err.Error())
	}
	return all
}
