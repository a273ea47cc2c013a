// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// fieldManager adds the managedFields that kube-apiserver adds to objects. They are most of an
// object's metadata, which clients keep in memory unless they remove them.
type fieldManager struct {
	// known are the entries by the structure of an object, which share them: to find the
	// fields of 150,000 pods takes minutes.
	known map[string][]metav1.ManagedFieldsEntry
}

// entries returns those of an object of a structure, whose name is the caller's.
func (m *fieldManager) entries(structure string, o runtime.Object, at time.Time) ([]metav1.ManagedFieldsEntry, error) {
	if known, ok := m.known[structure]; ok {
		return known, nil
	}
	found, err := entriesOf(o, at)
	if err != nil {
		return nil, err
	}
	if m.known == nil {
		m.known = map[string][]metav1.ManagedFieldsEntry{}
	}
	m.known[structure] = found
	return found, nil
}

// entriesOf returns the entries of an object whose status was written by a node's kubelet.
func entriesOf(o runtime.Object, at time.Time) ([]metav1.ManagedFieldsEntry, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("find the fields of an object: %w", err)
	}
	spec, status := map[string]any{}, map[string]any{}
	for name, value := range content {
		switch name {
		case "apiVersion", "kind":
		case "status":
			status[name] = value
		case "metadata":
			owned := map[string]any{}
			for _, name := range []string{"labels", "annotations"} {
				if part, ok := value.(map[string]any)[name]; ok {
					owned[name] = part
				}
			}
			spec[name] = owned
		default:
			spec[name] = value
		}
	}
	time := metav1.NewTime(at)
	var all []metav1.ManagedFieldsEntry
	for _, part := range []struct {
		manager, subresource string
		fields               map[string]any
	}{{"kube-controller-manager", "", spec}, {"kubelet", "status", status}} {
		if len(part.fields) == 0 {
			continue
		}
		encoded, err := json.Marshal(fieldsV1(part.fields))
		if err != nil {
			return nil, fmt.Errorf("encode managed fields: %w", err)
		}
		all = append(all, metav1.ManagedFieldsEntry{
			Manager: part.manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &time, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(encoded)), Subresource: part.subresource,
		})
	}
	return all, nil
}

// fieldsV1 returns the fields of a value as FieldsV1 has them: those of a map by name, the
// elements of a list of objects by their key, and nothing below others.
func fieldsV1(value any) map[string]any {
	fields := map[string]any{}
	switch v := value.(type) {
	case map[string]any:
		for name, below := range v {
			fields["f:"+name] = fieldsV1(below)
		}
	case []any:
		for _, element := range v {
			object, isObject := element.(map[string]any)
			if !isObject {
				return map[string]any{}
			}
			key, below := elementKey(object), fieldsV1(object)
			if key == "" {
				return map[string]any{}
			}
			below["."] = map[string]any{}
			fields["k:"+key] = below
		}
	}
	return fields
}

// elementKey returns the key of an element of a list, or "" if the list is written as a whole.
func elementKey(element map[string]any) string {
	for _, name := range []string{"name", "type"} {
		if value, ok := element[name].(string); ok {
			return fmt.Sprintf(`{%q:%q}`, name, value)
		}
	}
	return ""
}
