// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// defaultResources hold for about 100 nodes. There is no default limit: a limit
// that is too low ends metrics for the whole cluster.
func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("50m"),
		corev1.ResourceMemory: resource.MustParse("64Mi"),
	}}
}

func resources(s Serving) corev1.ResourceRequirements {
	if s.Spec.Resources != nil {
		return *s.Spec.Resources
	}
	return defaultResources()
}

// converted turns an API type into its apply configuration. Both have the same
// JSON form; fields that are not set stay unset, and so are not owned.
func converted[Apply, Typed any](from *Typed) *Apply {
	data, err := json.Marshal(from)
	if err == nil {
		to := new(Apply)
		if err = json.Unmarshal(data, to); err == nil {
			return to
		}
	}
	// Both types are generated from one definition, and from was decoded from
	// JSON itself: a mismatch is a mistake in this package.
	panic(fmt.Sprintf("convert %T to its apply configuration: %v", from, err))
}
