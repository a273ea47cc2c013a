// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// Fields that a field selector may name.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// Selection says which objects a watch or a list returns.
type Selection struct {
	// Namespace of the objects; empty for all, and for objects without one.
	Namespace string
	// Labels and Fields select among those; nil selects all. Fields may only use
	// metadata.name and metadata.namespace.
	Labels labels.Selector
	Fields fields.Selector
	// Clustered says that the objects are cluster-scoped, so a name alone is a key.
	Clustered bool
}

// Normalize returns an equivalent selection in canonical form.
func (s Selection) Normalize() Selection {
	if s.Labels != nil && s.Labels.Empty() {
		s.Labels = nil
	}
	if s.Fields != nil && s.Fields.Empty() {
		s.Fields = nil
	}
	if s.Fields != nil && s.Namespace == "" && !s.Clustered {
		if namespace, exact := s.Fields.RequiresExactMatch(fieldNamespace); exact {
			s.Namespace = namespace
		}
	}
	return s
}

// id returns a string that is equal for equal selections only.
func (s Selection) id() string {
	id := strconv.Quote(s.Namespace)
	if s.Labels != nil {
		id += " l " + strconv.Quote(s.Labels.String())
	}
	if s.Fields != nil {
		id += " f " + strconv.Quote(s.Fields.String())
	}
	return id
}

// terms returns the most comparisons that matching an object takes: values are compared one by one.
func (s Selection) terms() int {
	n := 0
	if s.Labels != nil {
		requirements, _ := s.Labels.Requirements()
		for i := range requirements {
			n += max(1, len(requirements[i].ValuesUnsorted()))
		}
	}
	if s.Fields != nil {
		n += len(s.Fields.Requirements())
	}
	return n
}

// Name returns the only name that can match, if the fields require one.
func (s Selection) Name() (string, bool) {
	if s.Fields == nil {
		return "", false
	}
	return s.Fields.RequiresExactMatch(fieldName)
}

// Key returns the only key that can match, if a normalized selection requires one. A name
// without a namespace may match in any namespace.
func (s Selection) Key() (samplestore.Key, bool) {
	name, exact := s.Name()
	if !exact || (s.Namespace == "" && !s.Clustered) {
		return samplestore.Key{}, false
	}
	return samplestore.Key{Namespace: s.Namespace, Name: name}, true
}

func (s Selection) matches(item Item) bool { return s.Matches(item.ItemKey(), item.ItemLabels()) }

// Matches reports whether a normalized selection selects an object by its key and labels.
func (s Selection) Matches(key samplestore.Key, of map[string]string) bool {
	return (s.Namespace == "" || s.Namespace == key.Namespace) &&
		(s.Fields == nil || matchesFields(s.Fields, key)) &&
		(s.Labels == nil || s.Labels.Matches(labels.Set(of)))
}

// matchesFields is a function of its own because it moves the key to the heap.
func matchesFields(f fields.Selector, key samplestore.Key) bool { return f.Matches(keyFields{&key}) }

// keyFields implements fields.Fields.
type keyFields struct{ *samplestore.Key }

func (f keyFields) Has(field string) bool { return field == fieldName || field == fieldNamespace }

func (f keyFields) Get(field string) string {
	switch field {
	case fieldName:
		return f.Name
	case fieldNamespace:
		return f.Namespace
	}
	return ""
}
