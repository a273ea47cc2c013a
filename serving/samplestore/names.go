// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package samplestore

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// Names returns the names of the objects in a namespace that kube-apiserver has and a
// selector selects, ordered, whether or not there are points of them.
func (t *Table) Names(namespace string, selector labels.Selector) []string {
	// Also brings up an index of a label that selectors ask for.
	entries, found := t.narrowest(namespace, RequiredLabels(selector))
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := []string{}
	take := func(e *entry) {
		if e.meta != nil && e.key.Namespace == namespace && selector.Matches(labels.Set(e.meta.Labels)) {
			names = append(names, e.key.Name)
		}
	}
	if found {
		for _, e := range entries {
			take(e)
		}
	} else if ns := t.namespaces[namespace]; ns != nil {
		for _, e := range ns.entries {
			take(e)
		}
	}
	slices.Sort(names)
	return names
}
