// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
)

// id identifies a row.
type id struct {
	// object is the key of the node or pod, which may have several rows.
	object               string
	namespace, pod, name string
}

// sample is a row's data point.
type sample struct {
	id id
	usage
	at time.Time
}

// usage is CPU in thousandths of a core and memory in bytes.
type usage struct{ cpu, memory int64 }

// or returns u, with o where it is 0.
func (u usage) or(o usage) usage { return usage{cmp.Or(u.cpu, o.cpu), cmp.Or(u.memory, o.memory)} }

func (u usage) plus(o usage) usage { return usage{u.cpu + o.cpu, u.memory + o.memory} }

func usageOf(list corev1.ResourceList) usage {
	return usage{cpu: list.Cpu().MilliValue(), memory: list.Memory().Value()}
}

// change is the new state of an object.
type change struct {
	object  string
	samples []sample // none if it has no metrics any more
	// last are the samples that an object without metrics had.
	last []sample
}

// source is a client.Watcher of nodes or pods.
type source struct {
	sync     func(context.Context) error
	run      func(context.Context) error
	status   func() client.Status
	snapshot func() []change
	// changes is closed once run has returned.
	changes <-chan change
}

// newSource converts the objects of watcher to samples.
func newSource[T any](watcher *client.Watcher[T], samples func(*T) []sample) *source {
	of := func(object *T) change {
		s := samples(object)
		if len(s) == 0 {
			return change{}
		}
		return change{object: s[0].id.object, samples: s}
	}
	out := make(chan change)
	return &source{
		sync:   watcher.Sync,
		status: watcher.Status,
		run: func(ctx context.Context) error {
			go func() {
				defer close(out)
				for c := range watcher.Changes() {
					next := of(c.Object)
					if c.Type == client.Dropped {
						next.samples, next.last = nil, next.samples
					}
					if next.object == "" {
						continue
					}
					select {
					case out <- next:
					case <-ctx.Done():
						return
					}
				}
			}()
			return watcher.Run(ctx)
		},
		snapshot: func() []change {
			var all []change
			for _, object := range watcher.Snapshot() {
				if c := of(object); c.object != "" {
					all = append(all, c)
				}
			}
			return all
		},
		changes: out,
	}
}

func nodeSamples(m *metricsv1.NodeMetrics) []sample {
	return []sample{{id{object: m.Name, name: m.Name}, usageOf(m.Usage), m.Timestamp.Time}}
}

// podSamples returns one sample, the sum of the pod's containers.
func podSamples(m *metricsv1.PodMetrics) []sample {
	sum := sample{id: id{object: m.Namespace + "/" + m.Name, namespace: m.Namespace, name: m.Name}, at: m.Timestamp.Time}
	for _, container := range containerSamples(m) {
		sum.usage = sum.plus(container.usage)
	}
	return []sample{sum}
}

// containerSamples returns a sample for each container.
func containerSamples(m *metricsv1.PodMetrics) []sample {
	key := m.Namespace + "/" + m.Name
	var all []sample
	for i := range m.Containers {
		c := &m.Containers[i]
		all = append(all, sample{id{object: key, namespace: m.Namespace, pod: m.Name, name: c.Name}, usageOf(c.Usage), m.Timestamp.Time})
	}
	return all
}

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
