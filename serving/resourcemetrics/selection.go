// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"iter"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
	"github.com/metricsbackend/metrics-backend-operator/serving/stream"
)

// selection is what the path and the selectors of a list or of a watch ask for.
// The installer has refused fields that no selector may name, as everywhere.
func (s *storage) selection(namespace string, options *metainternalversion.ListOptions) stream.Selection {
	selected := stream.Selection{Namespace: namespace, Clustered: !s.kind.namespaced}
	if options != nil {
		selected.Labels, selected.Fields = options.LabelSelector, options.FieldSelector
	}
	return selected.Normalize()
}

// selectObjects yields what is selected, ordered by key, beginning after a key (the
// zero Key: from the start).
func selectObjects(collection *samplestore.Collection, s stream.Selection, after samplestore.Key) iter.Seq[*samplestore.Object] {
	if name, exact := s.Name(); exact {
		return selectName(collection, s, name, after)
	}
	if s.Labels == nil && s.Fields == nil {
		return collection.List(s.Namespace, after)
	}
	return func(yield func(*samplestore.Object) bool) {
		for o := range collection.Select(s.Namespace, samplestore.RequiredLabels(s.Labels), after) {
			if s.Matches(o.Key, o.Meta.Labels) && !yield(o) {
				return
			}
		}
	}
}

// selectName yields the selected objects of a name: at most one of each namespace.
func selectName(collection *samplestore.Collection, s stream.Selection, name string, after samplestore.Key) iter.Seq[*samplestore.Object] {
	namespaces := []string{s.Namespace}
	if _, one := s.Key(); !one {
		namespaces = collection.Namespaces()
	}
	return func(yield func(*samplestore.Object) bool) {
		for _, namespace := range namespaces {
			key := samplestore.Key{Namespace: namespace, Name: name}
			if key.Compare(after) <= 0 {
				continue
			}
			if o := collection.Get(key); o != nil && s.Matches(o.Key, o.Meta.Labels) && !yield(o) {
				return
			}
		}
	}
}
