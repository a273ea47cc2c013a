// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// index is the watcher's snapshot by namespace, kept up to date by its changes: a decision then costs what the pods of
// a namespace cost, and not those of the cluster.
type index struct {
	mu         sync.RWMutex
	namespaces map[string]map[string]*metricsv1.PodMetrics
}

func newIndex() *index { return &index{namespaces: map[string]map[string]*metricsv1.PodMetrics{}} }

func (i *index) take(change client.Change[metricsv1.PodMetrics]) {
	pod := change.Object
	i.mu.Lock()
	defer i.mu.Unlock()
	within := i.namespaces[pod.Namespace]
	switch {
	case change.Type == client.Dropped:
		if delete(within, pod.Name); len(within) == 0 {
			delete(i.namespaces, pod.Namespace)
		}
	case within == nil:
		i.namespaces[pod.Namespace] = map[string]*metricsv1.PodMetrics{pod.Name: pod}
	default:
		within[pod.Name] = pod
	}
}

// list returns the pods of a namespace by name, as the API does. They are shared: do not change them.
func (i *index) list(namespace string, selector labels.Selector) []*metricsv1.PodMetrics {
	var pods []*metricsv1.PodMetrics
	i.mu.RLock()
	for _, pod := range i.namespaces[namespace] {
		if selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	i.mu.RUnlock()
	slices.SortFunc(pods, func(a, b *metricsv1.PodMetrics) int { return strings.Compare(a.Name, b.Name) })
	return pods
}
