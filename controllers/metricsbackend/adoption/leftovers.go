// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// stopTimeout limits the work after SIGTERM.
const stopTimeout = 5 * time.Second

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader registers
// the canary API.
func (c *Checker) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It deletes canary APIs that no reconciliation deletes,
// since their process has ended, or their MetricsBackend is gone; and, when ctx ends, that
// of this process.
func (c *Checker) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot look for canary APIs that are left")
		}
	}, canaryLifetime)
	own := c.own.Load()
	if own == nil {
		return nil
	}
	// ctx has ended: this has its own deadline.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := c.delete(ctx, *own); err != nil {
		klog.FromContext(ctx).Error(err, "Delete APIServices with label "+v1alpha1.LabelCanary+" by hand: while they are unavailable, no namespace can be deleted")
	}
	return nil
}

// sweep deletes canary APIs whose time is over.
func (c *Checker) sweep(ctx context.Context) error {
	var list apiregistrationv1.APIServiceList
	if err := c.APIReader.List(ctx, &list, client.HasLabels{v1alpha1.LabelCanary}); err != nil {
		return fmt.Errorf("list APIServices: %w", err)
	}
	for i := range list.Items {
		if canary := &list.Items[i]; c.Clock.Since(canary.CreationTimestamp.Time) >= canaryLifetime {
			if err := c.delete(ctx, canary.UID); err != nil {
				return err
			}
		}
	}
	return nil
}
