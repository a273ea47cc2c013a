// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// observe reads our APIServices around the cache: whether a version is
// registered decides what may be done to pods.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	// Not by label: one that lost it, and leads to our pods, is in discovery too.
	var list apiregistrationv1.APIServiceList
	if err := r.Live.List(ctx, &list); err != nil {
		return fmt.Errorf("list APIServices: %w", err)
	}
	for i := range list.Items {
		if service := &list.Items[i]; s.owns(service) {
			s.registered[service.Name] = service
			if s.leadsToServing(service) {
				s.history.streaks.Reset(stateKey{state: pointedAway, name: service.Name})
			}
		}
	}
	s.observed = true
	return nil
}
