// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// ConflictingManager returns the field manager that changed our fields of an APIService,
// and whether there is one. If no field was changed, only the desired state differs.
func (o Identity) ConflictingManager(live *apiregistrationv1.APIService) (string, bool) {
	for _, field := range o.differingFields(live) {
		if manager, changed := ChangedBy(live, field); changed {
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
		{to.Namespace == target.Namespace, ServiceNamespaceField},
		{to.Name == target.Name, ServiceNameField},
		{ptr.Deref(to.Port, manifests.ServicePort) == target.Port, []string{"f:spec", "f:service", "f:port"}},
		{spec.InsecureSkipTLSVerify == target.InsecureSkipTLSVerify, []string{"f:spec", "f:insecureSkipTLSVerify"}},
		{bytes.Equal(spec.CABundle, target.CABundle), CABundleField},
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
