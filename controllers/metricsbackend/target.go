// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// deploys reports whether the operator deploys the implementation itself.
func (s *reconcileState) deploys() bool { return s.spec.Existing == nil }

// target returns the Service that this backend's APIServices should point to.
func (s *reconcileState) target() manifests.Target { return s.targetWith(s.certificate.CABundle) }

// targetWith returns the target with a caBundle that verifies our pods.
func (s *reconcileState) targetWith(caBundle []byte) manifests.Target {
	if s.deploys() {
		return s.serving.Target(caBundle)
	}
	return manifests.ExistingTarget(s.spec.Existing)
}

// pointsTo reports whether an APIService points to the target's Service.
func pointsTo(service *apiregistrationv1.APIService, target manifests.Target) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == target.Namespace && to.Name == target.Name &&
		ptr.Deref(to.Port, manifests.ServicePort) == target.Port
}

// pointsToServing reports whether an APIService points to the Service of our pods, at any
// port. While one does, they must stay.
func (s *reconcileState) pointsToServing(service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == s.serving.Namespace && to.Name == s.serving.Name()
}

// pointsToHolder reports whether an APIService points to pods of the backend that its label
// names.
func pointsToHolder(service *apiregistrationv1.APIService) bool {
	holder, to := service.Labels[v1alpha1.LabelBackend], service.Spec.Service
	return holder != "" && to != nil && to.Name == manifests.Serving{Backend: holder}.Name()
}

// hasLabel reports whether an APIService has this backend's label.
func (s *reconcileState) hasLabel(service *apiregistrationv1.APIService) bool {
	return service.Labels[v1alpha1.LabelBackend] == s.backend.Name
}

// describeTarget names the Service that an APIService points to.
func describeTarget(service *apiregistrationv1.APIService) string {
	if service.Spec.Service == nil {
		return "kube-apiserver itself"
	}
	return fmt.Sprintf("Service %s/%s", service.Spec.Service.Namespace, service.Spec.Service.Name)
}
