// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// observe reads our APIServices around the cache: whether a version is
// registered decides what may be done to pods.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	registered, err := r.listAPIServices(ctx, s.backend.Name)
	if err != nil {
		return err
	}
	for i := range registered {
		s.registered[registered[i].Name] = &registered[i]
	}
	s.observed = true
	return nil
}

func (r *Reconciler) listAPIServices(ctx context.Context, backend string) ([]apiregistrationv1.APIService, error) {
	var list apiregistrationv1.APIServiceList
	if err := r.Live.List(ctx, &list, client.MatchingLabels{v1alpha1.LabelBackend: backend}); err != nil {
		return nil, fmt.Errorf("list the APIServices of MetricsBackend %s: %w", backend, err)
	}
	slices.SortFunc(list.Items, func(a, b apiregistrationv1.APIService) int { return cmp.Compare(a.Name, b.Name) })
	return list.Items, nil
}
