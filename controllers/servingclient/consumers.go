// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// consumers asks which clients use which version; nil when the pod's image is too
// old to tell. Its failure is no failure of the pod: what a pod serves decides
// over requests, who uses it only over how fast a version may be taken away. And
// just after an upgrade of the operator, the pod may not have heard yet that the
// prober's account may ask.
func (s *session) consumers(ctx context.Context) (*v1alpha1.ConsumerReport, error) {
	var report v1alpha1.ConsumerReport
	found, err := s.get(ctx, v1alpha1.ConsumersPath, &report)
	if err != nil || !found {
		return nil, err
	}
	return &report, nil
}
