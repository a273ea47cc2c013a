// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"iter"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// Fields that a selector may name; the installer refuses others, as everywhere.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// selection is what a list's path and selectors ask for.
type selection struct {
	// namespace to look in; empty for all, and for nodes.
	namespace string
	// key of the only object that can match, where that is known.
	key *point.Key
	// labels and fields decide; nil where everything matches.
	labels labels.Selector
	fields fields.Selector
}

func (s *storage) selection(namespace string, options *metainternalversion.ListOptions) selection {
	selected := selection{namespace: namespace}
	if options == nil {
		return selected
	}
	if options.LabelSelector != nil && !options.LabelSelector.Empty() {
		selected.labels = options.LabelSelector
	}
	if options.FieldSelector == nil || options.FieldSelector.Empty() {
		return selected
	}
	selected.fields = options.FieldSelector
	if wanted, exact := options.FieldSelector.RequiresExactMatch(fieldNamespace); exact && s.kind.namespaced && namespace == "" {
		selected.namespace = wanted
	}
	// A name without a namespace is looked for in all of them: no lookup there.
	if name, exact := options.FieldSelector.RequiresExactMatch(fieldName); exact && (selected.namespace != "" || !s.kind.namespaced) {
		selected.key = &point.Key{Namespace: selected.namespace, Name: name}
	}
	return selected
}

// objects yields what is selected, ordered by key, beginning after a key (the
// zero Key: from the start).
func (s selection) objects(table *point.Table, after point.Key) iter.Seq[*point.Object] {
	if s.key != nil {
		return func(yield func(*point.Object) bool) {
			if s.key.Compare(after) <= 0 {
				return
			}
			if o := table.Get(*s.key); o != nil && s.matches(o) {
				yield(o)
			}
		}
	}
	if s.labels == nil && s.fields == nil {
		return table.List(s.namespace, after)
	}
	return func(yield func(*point.Object) bool) {
		for o := range table.Select(s.namespace, point.RequiredLabels(s.labels), after) {
			if s.matches(o) && !yield(o) {
				return
			}
		}
	}
}

func (s selection) matches(o *point.Object) bool {
	return (s.fields == nil || s.fields.Matches(objectFields{&o.Key})) &&
		(s.labels == nil || s.labels.Matches(labels.Set(o.Meta.Labels)))
}

// objectFields are the fields of an object that a field selector can name.
type objectFields struct{ *point.Key }

func (f objectFields) Has(field string) bool {
	return field == fieldName || field == fieldNamespace
}

func (f objectFields) Get(field string) string {
	switch field {
	case fieldName:
		return f.Name
	case fieldNamespace:
		return f.Namespace
	}
	return ""
}
