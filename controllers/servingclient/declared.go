// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package servingclient

import (
	"context"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// declaredTimeout bounds the request: a pod waits up to 5 seconds for its sources
// before it says what it has.
const declaredTimeout = 10 * time.Second

// maxDeclaredBody bounds a report of declared metrics, in bytes: one of them takes
// less than 2 KiB.
const maxDeclaredBody = 16 << 20

// Declared asks a pod how CustomMetrics and ExternalMetrics do, with one request.
// It returns nil when the pod has no such report.
func (c *Client) Declared(ctx context.Context, pod Pod) (*v1alpha1.DeclaredReport, error) {
	request, err := c.open(pod)
	if err != nil {
		return nil, err
	}
	defer request.http.CloseIdleConnections()
	request.limit, request.http.Timeout = maxDeclaredBody, declaredTimeout
	var report v1alpha1.DeclaredReport
	found, err := request.get(ctx, v1alpha1.DeclaredPath, &report)
	if err != nil || !found {
		return nil, err
	}
	return &report, nil
}
