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

// deploys tells whether the operator runs the implementation itself.
func (s *scope) deploys() bool { return s.spec.Existing == nil }

// target is where this backend's APIServices should lead.
func (s *scope) target() manifests.Target {
	if s.deploys() {
		return s.serving.Target(s.caBundle)
	}
	return manifests.ExistingTarget(s.spec.Existing)
}

// leadsTo tells whether an APIService leads to the target's Service.
func leadsTo(service *apiregistrationv1.APIService, target manifests.Target) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == target.Namespace && to.Name == target.Name &&
		ptr.Deref(to.Port, manifests.ServicePort) == target.Port
}

// leadsToServing tells whether an APIService leads to the Service of our own
// serving pods, at whichever port: while one does, they may not go.
func (s *scope) leadsToServing(service *apiregistrationv1.APIService) bool {
	to := service.Spec.Service
	return to != nil && to.Namespace == s.serving.Namespace && to.Name == s.serving.Name()
}

// servesStill tells whether any APIService leads to our own serving pods.
func (s *scope) servesStill() bool {
	for _, service := range s.registered {
		if s.leadsToServing(service) {
			return true
		}
	}
	return false
}

// holds tells whether this backend has the APIService by its label.
func (s *scope) holds(service *apiregistrationv1.APIService) bool {
	return service.Labels[v1alpha1.LabelBackend] == s.backend.Name
}

// whereTo names the Service that an APIService leads to, for messages.
func whereTo(service *apiregistrationv1.APIService) string {
	if service.Spec.Service == nil {
		return "kube-apiserver itself"
	}
	return fmt.Sprintf("Service %s/%s", service.Spec.Service.Namespace, service.Spec.Service.Name)
}
