// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// capacityInterval is between two lists of all nodes, which are big in a big cluster.
const capacityInterval = time.Minute

// capacity finds out what nodes have for pods.
type capacity struct {
	cluster *connection.Cluster
	// labels and fields select the nodes that are shown.
	labels, fields string

	wanted chan struct{}
	out    chan nodesFound
}

type nodesFound struct {
	available map[string]usage
	problem   string
}

func newCapacity(cluster *connection.Cluster, labels, fields string) *capacity {
	return &capacity{cluster: cluster, labels: labels, fields: fields, wanted: make(chan struct{}, 1), out: make(chan nodesFound)}
}

// found is nil, which blocks, for a nil capacity.
func (c *capacity) found() <-chan nodesFound {
	if c == nil {
		return nil
	}
	return c.out
}

// want asks for another look, since a node is not known.
func (c *capacity) want() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// run looks when it is wanted, and no more often than each capacityInterval.
func (c *capacity) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wanted:
		}
		select {
		case <-ctx.Done():
			return
		case c.out <- c.look(ctx):
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(capacityInterval):
		}
	}
}

// look lists nodes. Without the permission there are
// no percentages, and that is all.
func (c *capacity) look(ctx context.Context) nodesFound {
	available, err := c.cluster.Allocatable(ctx, c.labels, c.fields)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nodesFound{}
		}
		if apierrors.IsForbidden(err) {
			return nodesFound{problem: "no percentages without the permission to list nodes"}
		}
		klog.FromContext(ctx).Info("Nodes cannot be listed", "err", err)
		return nodesFound{problem: "no percentages, nodes cannot be listed"}
	}
	found := nodesFound{available: make(map[string]usage, len(available))}
	for name, resources := range available {
		found.available[name] = usageOf(resources)
	}
	return found
}

func usageOf(list corev1.ResourceList) usage {
	return usage{cpu: list.Cpu().MilliValue(), memory: list.Memory().Value()}
}
