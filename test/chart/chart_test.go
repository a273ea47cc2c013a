// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests charts/metrics-backend-operator without a cluster. This
// module also builds the helm that test/e2e uses: go -C test/chart tool helm.
package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	directory = "../../charts/metrics-backend-operator"
	// namespace is that of config/default.
	namespace = "metrics-backend-system"
)

// render returns what helm install would apply, by kind, namespace and name.
func render(t *testing.T, values string) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	return renderIn(t, namespace, values)
}

// renderIn is render with another release namespace.
func renderIn(t *testing.T, namespace, values string) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	files, err := render4(directory, namespace, unmarshal(t, values))
	if err != nil {
		return nil, err
	}
	return objectsIn(t, files), nil
}

// objectsIn returns the objects in files of manifests.
func objectsIn(t *testing.T, files map[string]string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			read(t, name, files[name], objects)
		}
	}
	return objects
}

func mustRender(t *testing.T, values string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// kustomized returns what kubectl apply -k would, of several folders.
func kustomized(t *testing.T, folders ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	objects := map[string]*unstructured.Unstructured{}
	for _, folder := range folders {
		made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
		if err != nil {
			t.Fatal(err)
		}
		content, err := made.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		read(t, folder, string(content), objects)
	}
	return objects
}

func read(t *testing.T, from, content string, into map[string]*unstructured.Unstructured) {
	t.Helper()
	for _, document := range strings.Split("\n"+content, "\n---") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%s: %v in\n%s", from, err, document)
		}
		if object.Object == nil {
			continue
		}
		name := strings.TrimSpace(object.GetKind() + " " + strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"))
		if into[name] != nil {
			t.Fatalf("%s: %s is there twice", from, name)
		}
		into[name] = object
	}
}
