// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
)

// authoritySuffix follows the name of a source in that of the ConfigMap with its CA certificates.
const authoritySuffix = "-ca"

// spec is what the command sets in the spec of a MetricsBackend.
type spec struct {
	Sources         []v1alpha1.SourceSpec `json:"sources"`
	CustomMetrics   section               `json:"customMetrics,omitzero"`
	ExternalMetrics section               `json:"externalMetrics,omitzero"`
}

// section is what it sets in the section of a group.
type section struct {
	Versions []string                `json:"versions,omitempty"`
	Adoption v1alpha1.AdoptionPolicy `json:"adoption,omitempty"`
	Routes   []v1alpha1.MetricRoute  `json:"routes,omitempty"`
}

// IsZero reports whether there is nothing to set.
func (s section) IsZero() bool { return s.Versions == nil && s.Routes == nil && s.Adoption == "" }

// section returns the section of a group, to be changed: custom or external.
func (s *spec) section(api string) *section {
	if api == "custom" {
		return &s.CustomMetrics
	}
	return &s.ExternalMetrics
}

// appliedSpec returns what the command has set before, for either group: an apply removes what it leaves out.
func appliedSpec(backend *v1alpha1.MetricsBackend) *spec {
	applied := &spec{}
	i := slices.IndexFunc(backend.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == fieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
	})
	if i < 0 {
		return applied
	}
	sets := func(path ...string) bool {
		return apiservices.ManagesField(backend.ManagedFields[i], append([]string{"f:spec"}, path...))
	}
	for _, source := range backend.Spec.Sources {
		if sets("f:sources", `k:{"name":"`+source.Name+`"}`) {
			applied.Sources = append(applied.Sources, source)
		}
	}
	for _, api := range []string{"custom", "external"} {
		field, live, section := "f:"+api+"Metrics", backend.Spec.Section(api+".metrics.k8s.io"), applied.section(api)
		for _, version := range live.Versions {
			if sets(field, "f:versions", `v:"`+version+`"`) {
				section.Versions = append(section.Versions, version)
			}
		}
		if sets(field, "f:routes") {
			section.Routes = routesOf(&backend.Spec, api)
		}
		if sets(field, "f:adoption") {
			section.Adoption = live.Adoption
		}
	}
	return applied
}

// routesOf returns the routes of a group: custom or external.
func routesOf(spec *v1alpha1.MetricsBackendSpec, api string) []v1alpha1.MetricRoute {
	if api == "custom" {
		return ptr.Deref(spec.CustomMetrics, v1alpha1.CustomMetricsSpec{}).Routes
	}
	return ptr.Deref(spec.ExternalMetrics, v1alpha1.ExternalMetricsSpec{}).Routes
}

// backendWith returns a MetricsBackend to apply.
func backendWith(name string, spec *spec) *unstructured.Unstructured {
	return unstructuredOf(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "MetricsBackend", "metadata": map[string]any{"name": name}, "spec": spec,
	})
}

// authority returns the ConfigMap with the CA certificates of a source.
func authority(namespace string, reference *v1alpha1.ConfigMapKeyReference, caBundle []byte) *unstructured.Unstructured {
	return unstructuredOf(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": reference.Name, "namespace": namespace},
		"data": map[string]any{reference.Key: string(caBundle)},
	})
}

// unstructuredOf returns an object with only the fields that are set.
func unstructuredOf(object map[string]any) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	if text, err := json.Marshal(object); err == nil { // these types always can be
		_ = json.Unmarshal(text, &made.Object)
	}
	return made
}
