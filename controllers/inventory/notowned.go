// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// NotOwnedError says that an object of a wanted name belongs to someone else.
type NotOwnedError struct {
	Kind schema.GroupVersionKind
	Key  client.ObjectKey
	// Backend is the MetricsBackend that owns the object; empty when none does.
	Backend string
	// Wanted is the MetricsBackend that wants it.
	Wanted string
}

// Error implements error.
func (e *NotOwnedError) Error() string {
	object := fmt.Sprintf("%s %s", e.Kind.Kind, Path(e.Key))
	if e.Backend != "" {
		return fmt.Sprintf("%s belongs to MetricsBackend %q", object, e.Backend)
	}
	return fmt.Sprintf("%s exists and does not belong to this MetricsBackend: delete it, or hand it over with the label %s=%s",
		object, v1alpha1.LabelBackend, e.Wanted)
}

// Path is NAMESPACE/NAME, or NAME for what is in no namespace.
func Path(key client.ObjectKey) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.Namespace + "/" + key.Name
}
