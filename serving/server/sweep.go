// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/serving/point"
)

// sweepPeriod is how often expired points are let go. They are not served after
// maxAge in any case; this only returns their memory.
const sweepPeriod = 15 * time.Second

// sweep frees expired points until the context ends.
func sweep(ctx context.Context, c clock.WithTicker, store *point.Store) {
	ticker := c.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		storePoints.WithLabelValues("node").Set(float64(store.Nodes.Sweep()))
		storePoints.WithLabelValues("pod").Set(float64(store.Pods.Sweep()))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
