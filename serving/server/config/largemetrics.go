// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	// largeMetricsTimeout limits one pass over all large metrics; the rest is read after
	// largeMetricsRetry.
	largeMetricsTimeout = 10 * time.Second
	largeMetricsRetry   = 5 * time.Second
	largeMetricsWorkers = 8
)

// declaredMetric is a *v1alpha1.CustomMetric or a *v1alpha1.ExternalMetric.
type declaredMetric interface {
	metaObject
	v1alpha1.LimitedMetric
}

// largeMetrics reads large metrics of one kind: their informer drops the specs, so that those
// that are left out take no memory. One goroutine uses it.
type largeMetrics[T declaredMetric] struct {
	get func(ctx context.Context, namespace, name string) (T, error)
	// read are the large metrics that are used.
	read map[types.UID]T
}

// newLargeMetrics reads from a resource whose objects have the type of the example.
func newLargeMetrics[T declaredMetric](client rest.Interface, resource string, example T) *largeMetrics[T] {
	return &largeMetrics[T]{get: func(ctx context.Context, namespace, name string) (T, error) {
		read, ok := example.DeepCopyObject().(T)
		if !ok {
			return read, fmt.Errorf("copy a %T: it is not of its own type", example)
		}
		err := client.Get().Namespace(namespace).Resource(resource).Name(name).Do(ctx).Into(read)
		return read, err
	}}
}

// complete returns the metrics in the same order, the large ones with their spec. If a spec cannot
// be read, the one that was read before is used, or the metric is left out, and the error says
// why. A metric that was deleted meanwhile is left out without an error.
func (l *largeMetrics[T]) complete(ctx context.Context, used []T) ([]T, error) {
	read := map[types.UID]T{}
	var missing []T
	for _, m := range used {
		if !m.IsLarge() {
			continue
		}
		before, ok := l.read[m.GetUID()]
		if ok {
			read[m.GetUID()] = before
		}
		if !ok || before.GetGeneration() < m.GetGeneration() {
			missing = append(missing, m)
		}
	}
	failures := l.readAll(ctx, missing, read)
	l.read = read
	if len(read) == 0 && len(missing) == 0 {
		return used, nil
	}
	all := make([]T, 0, len(used))
	for _, m := range used {
		if m.IsLarge() {
			var ok bool
			if m, ok = read[m.GetUID()]; !ok {
				continue
			}
		}
		all = append(all, m)
	}
	return all, failures
}

// readAll adds the metrics to read. It returns the first error, with the number of metrics that
// could not be read.
func (l *largeMetrics[T]) readAll(ctx context.Context, metrics []T, read map[types.UID]T) error {
	ctx, cancel := context.WithTimeout(ctx, largeMetricsTimeout)
	defer cancel()
	var mu sync.Mutex
	var first error
	done := 0
	workqueue.ParallelizeUntil(ctx, largeMetricsWorkers, len(metrics), func(i int) {
		m := metrics[i]
		current, err := l.get(ctx, m.GetNamespace(), m.GetName())
		mu.Lock()
		defer mu.Unlock()
		switch {
		case apierrors.IsNotFound(err), err == nil && current.GetUID() != m.GetUID():
			// Deleted, or created again: the informer knows it soon.
			done++
			delete(read, m.GetUID())
		case err != nil && first == nil:
			first = fmt.Errorf("read %s/%s: %w", m.GetNamespace(), m.GetName(), err)
		case err == nil:
			done++
			trimMetadata(current)
			read[m.GetUID()] = current
		}
	})
	if done == len(metrics) {
		return nil
	}
	if first == nil {
		first = errors.New("there was no time for all of them")
	}
	return fmt.Errorf("%d of %d large metrics could not be read: %w", len(metrics)-done, len(metrics), first)
}
