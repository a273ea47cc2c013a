// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"k8s.io/apimachinery/pkg/api/meta"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// contest returns the contest over an APIService. A new one is stopped if the stored
// status says so of this generation, so that a restart does not start the writes over.
func (s *reconcileState) contest(name string) *lifecycle.Contest {
	c := s.history.contests[name]
	if c == nil || c.Generation != s.backend.Generation {
		restarted := c == nil && s.wasContested()
		c = &lifecycle.Contest{Generation: s.backend.Generation}
		if restarted {
			c.Stop(s.now)
		}
		s.history.contests[name] = c
	}
	return c
}

// isContested reports whether the operator has paused writing the APIService, since another
// manager keeps changing what differs from the target with this caBundle.
func (s *reconcileState) isContested(service *apiregistrationv1.APIService, caBundle []byte) bool {
	_, contested := s.oursWith(s.targetWith(caBundle)).ConflictingManager(service)
	return contested && s.contest(service.Name).Paused(s.now)
}

// wasContested reports whether the stored status says that writing stopped in this
// generation.
func (s *reconcileState) wasContested() bool {
	stalled := meta.FindStatusCondition(s.storedStatus.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Reason == v1alpha1.ReasonContested && stalled.ObservedGeneration == s.backend.Generation
}
