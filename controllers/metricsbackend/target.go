// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
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

// ours says which APIServices are this backend's.
func (s *reconcileState) ours() lifecycle.Ours { return s.oursWith(s.target()) }

// oursWith is ours with another target.
func (s *reconcileState) oursWith(target manifests.Target) lifecycle.Ours {
	return lifecycle.Ours{Serving: s.serving, Target: target, Deploys: s.deploys()}
}
