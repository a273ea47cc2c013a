// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
)

// Identity says which APIServices are a MetricsBackend's, and where they should point to.
type Identity struct {
	Serving manifests.Serving
	// Target is the Service of our pods or, without Deploys, that of spec.existing.
	Target  manifests.Target
	Deploys bool
}

// Owns reports whether an APIService is ours: it has our label, or it lost it but points to
// our pods.
func (o Identity) Owns(service *apiregistrationv1.APIService) bool {
	holder := service.Labels[v1alpha1.LabelBackend]
	return holder == o.Serving.Backend || holder == "" && o.PointsToPods(service)
}

// HasLabel reports whether an APIService has our label.
func (o Identity) HasLabel(service *apiregistrationv1.APIService) bool {
	return service.Labels[v1alpha1.LabelBackend] == o.Serving.Backend
}

// PointsToPods reports whether an APIService points to the Service of our pods, at any port.
// While one does, they must stay.
func (o Identity) PointsToPods(service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == o.Serving.Namespace && to.Name == o.Serving.Name()
}

// PointsToTarget reports whether an APIService points to the target's Service.
func (o Identity) PointsToTarget(service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == o.Target.Namespace && to.Name == o.Target.Name &&
		ptr.Deref(to.Port, manifests.ServicePort) == o.Target.Port
}

// IsRepointed reports whether another manager pointed an APIService with our label to a
// Service that is neither ours nor spec.existing. An apply by others leaves our label.
func (o Identity) IsRepointed(live *apiregistrationv1.APIService) bool {
	return !o.PointsToPods(live) && (o.Deploys || !o.PointsToTarget(live)) && isRepointed(live)
}

// isRepointed reports whether a manager other than any operator's pointed an APIService to its Service.
func isRepointed(live *apiregistrationv1.APIService) bool {
	_, namespace := apiservices.ChangedBy(live, v1alpha1.FieldOwner, apiservices.ServiceNamespaceField)
	_, name := apiservices.ChangedBy(live, v1alpha1.FieldOwner, apiservices.ServiceNameField)
	return namespace || name
}

// PointsToLabelled reports whether an APIService points to pods of the MetricsBackend that its
// label names.
func PointsToLabelled(service *apiregistrationv1.APIService) bool {
	holder, to := service.Labels[v1alpha1.LabelBackend], service.Spec.Service
	return holder != "" && to != nil && to.Name == manifests.Serving{Backend: holder}.Name()
}

// DescribeTarget names the Service that an APIService points to.
func DescribeTarget(service *apiregistrationv1.APIService) string {
	if service.Spec.Service == nil {
		return "kube-apiserver itself"
	}
	return fmt.Sprintf("Service %s/%s", service.Spec.Service.Namespace, service.Spec.Service.Name)
}

// ConflictingManager returns the field manager that changed our fields of an APIService,
// and whether there is one. If no field was changed, only the desired state differs.
func (o Identity) ConflictingManager(live *apiregistrationv1.APIService) (string, bool) {
	for _, field := range o.differingFields(live) {
		if manager, changed := apiservices.ChangedBy(live, v1alpha1.FieldOwner, field); changed {
			return manager, true
		}
	}
	return "", false
}

// differingFields returns the paths of fields and labels that differ from what we
// want.
func (o Identity) differingFields(live *apiregistrationv1.APIService) [][]string {
	spec := &live.Spec
	to := ptr.Deref(spec.Service, apiregistrationv1.ServiceReference{})
	target, gv := o.Target, schema.GroupVersion{Group: spec.Group, Version: spec.Version}
	desired := manifests.APIService(o.Serving, gv, target)
	var paths [][]string
	for _, field := range []struct {
		same bool
		path []string
	}{
		{o.HasLabel(live), []string{"f:metadata", "f:labels", "f:" + v1alpha1.LabelBackend}},
		{to.Namespace == target.Namespace, apiservices.ServiceNamespaceField},
		{to.Name == target.Name, apiservices.ServiceNameField},
		{ptr.Deref(to.Port, manifests.ServicePort) == target.Port, []string{"f:spec", "f:service", "f:port"}},
		{spec.InsecureSkipTLSVerify == target.InsecureSkipTLSVerify, []string{"f:spec", "f:insecureSkipTLSVerify"}},
		{bytes.Equal(spec.CABundle, target.CABundle), apiservices.CABundleField},
		{spec.GroupPriorityMinimum == *desired.Spec.GroupPriorityMinimum, []string{"f:spec", "f:groupPriorityMinimum"}},
		{spec.VersionPriority == *desired.Spec.VersionPriority, []string{"f:spec", "f:versionPriority"}},
	} {
		if !field.same {
			paths = append(paths, field.path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(desired.Labels)) {
		if key != v1alpha1.LabelBackend && live.Labels[key] != desired.Labels[key] {
			paths = append(paths, []string{"f:metadata", "f:labels", "f:" + key})
		}
	}
	return paths
}
