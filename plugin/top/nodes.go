// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// nodeListInterval is the minimum time between two lists of all nodes.
const nodeListInterval = time.Minute

// nodeLister lists the allocatable resources of nodes.
type nodeLister struct {
	cluster *connection.Cluster
	// labels and fields are the selectors.
	labels, fields string

	requests chan struct{}
	out      chan nodeList
}

type nodeList struct {
	available map[string]usage
	problem   string
}

// request requests another list, for a node that is not known.
func (c *nodeLister) request() {
	select {
	case c.requests <- struct{}{}:
	default:
	}
}

// run lists nodes on request, at most once per nodeListInterval.
func (c *nodeLister) run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		select {
		case <-ctx.Done():
			return
		case <-c.requests:
		}
		select {
		case <-ctx.Done():
		case c.out <- c.list(ctx):
		}
	}, nodeListInterval)
}

// list lists nodes. Without the permission only the percentages are missing.
func (c *nodeLister) list(ctx context.Context) nodeList {
	available, err := c.cluster.Allocatable(ctx, c.labels, c.fields)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nodeList{}
		}
		if apierrors.IsForbidden(err) {
			return nodeList{problem: "no percentages without the permission to list nodes"}
		}
		klog.FromContext(ctx).Info("Nodes cannot be listed", "err", err)
		return nodeList{problem: "no percentages, nodes cannot be listed"}
	}
	found := nodeList{available: make(map[string]usage, len(available))}
	for name, resources := range available {
		found.available[name] = usageOf(resources)
	}
	return found
}
