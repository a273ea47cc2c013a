// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// section is the spec of an API group.
type section struct {
	// field is its name in the spec.
	field string
	// versions are those to register, and forced those to remove despite their clients.
	// All of these are empty if the spec lacks the section.
	versions, forced []string
	adoption         v1alpha1.AdoptionPolicy
	despiteLost      bool
}

func sectionOf(spec v1alpha1.MetricsBackendSpec, group string) section {
	found := section{}
	switch group {
	case manifests.ResourceMetricsGroup:
		found.field = "resourceMetrics"
		if rm := spec.ResourceMetrics; rm != nil {
			found.versions, found.forced, found.adoption = texts(rm.Versions), texts(rm.RemoveDespiteConsumers), rm.Adoption
		}
	case manifests.CustomMetricsGroup:
		found.field = "customMetrics"
		if cm := spec.CustomMetrics; cm != nil {
			found.versions, found.forced, found.adoption = texts(cm.Versions), texts(cm.RemoveDespiteConsumers), cm.Adoption
			found.despiteLost = cm.AdoptDespiteLostMetrics
		}
	case manifests.ExternalMetricsGroup:
		found.field = "externalMetrics"
		if em := spec.ExternalMetrics; em != nil {
			found.versions, found.forced, found.adoption = texts(em.Versions), texts(em.RemoveDespiteConsumers), em.Adoption
			found.despiteLost = em.AdoptDespiteLostMetrics
		}
	}
	return found
}

func texts[T ~string](values []T) []string {
	var all []string
	for _, value := range values {
		all = append(all, string(value))
	}
	return all
}

// desiredVersions returns the versions that a spec names, the best version of each group
// first.
func desiredVersions(spec v1alpha1.MetricsBackendSpec) []schema.GroupVersion {
	var desired []schema.GroupVersion
	for _, known := range manifests.KnownVersions() {
		if slices.Contains(sectionOf(spec, known.Group).versions, known.Version) {
			desired = append(desired, known)
		}
	}
	return desired
}

// sectionField returns the field of the spec that the group has.
func sectionField(gv schema.GroupVersion) string {
	return "spec." + sectionOf(v1alpha1.MetricsBackendSpec{}, gv.Group).field
}

// versionsField returns the field that names the versions of the group.
func versionsField(gv schema.GroupVersion) string { return sectionField(gv) + ".versions" }

// shortVersion returns the version, with the first word of its group unless that is
// metrics.k8s.io.
func shortVersion(gv schema.GroupVersion) string {
	if gv.Group == manifests.ResourceMetricsGroup {
		return gv.Version
	}
	word, _, _ := strings.Cut(gv.Group, ".")
	return word + "/" + gv.Version
}

func apiServiceName(gv schema.GroupVersion) string { return manifests.APIServiceName(gv) }

func joinVersions(versions []schema.GroupVersion) string {
	return strings.Join(shortVersions(versions), " and ")
}

func shortVersions(versions []schema.GroupVersion) []string {
	var names []string
	for _, gv := range versions {
		names = append(names, shortVersion(gv))
	}
	return names
}
