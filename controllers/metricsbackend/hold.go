// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// holdUp is why a version is not registered although everything is ready for it.
type holdUp struct{ reason, message string }

// hold keeps one version from being registered, and nothing else: pods are
// deployed and asked all the same, so that the version can be registered the
// moment that whoever has it lets go.
func (s *scope) hold(gv schema.GroupVersion, reason, format string, args ...any) {
	name := apiServiceName(gv)
	if _, ok := s.held[name]; !ok {
		s.held[name] = &holdUp{reason: reason, message: fmt.Sprintf(format, args...)}
		s.heldInOrder = append(s.heldInOrder, gv)
	}
}

// tellHeld sets Stalled for versions that are held. Not before the phases that
// prepare: a backend that is stalled earlier has a reason that comes first.
func (s *scope) tellHeld() {
	for _, gv := range s.heldInOrder {
		e := s.held[apiServiceName(gv)]
		s.stall(&stalledError{reason: e.reason, message: e.message})
		if live := s.registered[apiServiceName(gv)]; live == nil {
			s.setState(gv, v1alpha1.APIServicePending, e.message)
		}
	}
}
