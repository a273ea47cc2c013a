// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"cmp"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// resourceVersion of everything.
const resourceVersion = "1000000"

// Object of a resource. Only its metadata is kept; the whole object is made when it is
// requested, since 150,000 pods need gigabytes.
type Object struct {
	Meta metav1.ObjectMeta
	// Fields are those that a field selector may use, beside name and namespace.
	Fields fields.Set
	// Whole returns the object, whose metadata is replaced.
	Whole func() Whole
}

// Whole is any Kubernetes object.
type Whole interface {
	runtime.Object
	metav1.Object
}

// Resource is all objects of a kind of core/v1.
type Resource struct {
	Kind       string
	Namespaced bool
	// Empty and List return an empty object and list.
	Empty func() Whole
	List  func() runtime.Object

	objects []Object
}

// Set sets the objects, in the order of kube-apiserver's lists.
func (r *Resource) Set(objects []Object) {
	r.objects = objects
	slices.SortFunc(r.objects, func(a, b Object) int {
		return cmp.Or(cmp.Compare(a.Meta.Namespace, b.Meta.Namespace), cmp.Compare(a.Meta.Name, b.Meta.Name))
	})
	for i := range r.objects {
		r.objects[i].Meta.ResourceVersion = resourceVersion
	}
}

// find returns an object, nil if there is none.
func (r *Resource) find(namespace, name string) *Object {
	i, found := slices.BinarySearchFunc(r.objects, [2]string{namespace, name}, func(o Object, key [2]string) int {
		return cmp.Or(cmp.Compare(o.Meta.Namespace, key[0]), cmp.Compare(o.Meta.Name, key[1]))
	})
	if !found {
		return nil
	}
	return &r.objects[i]
}

// fieldsOf returns what a field selector is matched against.
type fieldsOf struct{ *Object }

// Has implements fields.Fields.
func (o fieldsOf) Has(field string) bool { return o.Get(field) != "" }

// Get implements fields.Fields.
func (o fieldsOf) Get(field string) string {
	switch field {
	case "metadata.name":
		return o.Meta.Name
	case "metadata.namespace":
		return o.Meta.Namespace
	}
	return o.Fields.Get(field)
}

// selection returns the objects of a namespace, or of all, that match the selectors.
func (r *Resource) selection(namespace string, options metav1.ListOptions) ([]*Object, error) {
	byLabel, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("label selector: %v", err))
	}
	byField, err := fields.ParseSelector(options.FieldSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("field selector: %v", err))
	}
	var selected []*Object
	for i := range r.objects {
		o := &r.objects[i]
		if (namespace == "" || o.Meta.Namespace == namespace) && byLabel.Matches(labels.Set(o.Meta.Labels)) && byField.Matches(fieldsOf{o}) {
			selected = append(selected, o)
		}
	}
	return selected, nil
}
