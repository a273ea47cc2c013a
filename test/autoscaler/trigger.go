// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"slices"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/labels"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

const (
	// settle is how long an HPA waits for more data points after a first one: those of a node come together, and a
	// decision on half of them would be made again.
	settle = 100 * time.Millisecond
	// spacing is the least time between two decisions on one HPA, however many nodes its pods are on.
	spacing = time.Second
)

// trigger makes an HPA due when a data point of one of its pods arrives.
type trigger struct {
	hpas    autoscalinglisters.HorizontalPodAutoscalerLister
	targets *targets
	requeue func(cache.ObjectName) bool
	queue   workqueue.TypedDelayingInterface[cache.ObjectName]
	// observe is told of each data point, if it is there.
	observe func(*metricsv1.PodMetrics)

	// last is when an HPA was made due; it belongs to the worker.
	last map[cache.ObjectName]time.Time
}

func newTrigger(hpas autoscalinglisters.HorizontalPodAutoscalerLister, targets *targets, requeue func(cache.ObjectName) bool) *trigger {
	return &trigger{
		hpas: hpas, targets: targets, requeue: requeue,
		queue: workqueue.NewTypedDelayingQueue[cache.ObjectName](),
		last:  map[cache.ObjectName]time.Time{},
	}
}

// run takes changes in until their channel is closed.
func (t *trigger) run(ctx context.Context, changes <-chan client.Change[metricsv1.PodMetrics]) {
	var worker sync.WaitGroup
	worker.Go(func() { t.work(ctx) })
	defer worker.Wait()
	defer t.queue.ShutDown()
	for change := range changes {
		// A pod that is gone calls for no decision before the next sync: its place is taken by others, or not.
		if change.Type == client.Updated {
			t.take(ctx, change.Object)
		}
	}
}

// take makes the HPAs due that look at the pod.
func (t *trigger) take(ctx context.Context, point *metricsv1.PodMetrics) {
	if t.observe != nil {
		t.observe(point)
	}
	hpas, err := t.hpas.HorizontalPodAutoscalers(point.Namespace).List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "A data point reaches no HPA before the next sync", "pod", klog.KObj(point))
		return
	}
	for _, hpa := range hpas {
		if usesResourceMetrics(hpa) && t.targets.match(targetOf(hpa), point.Labels) {
			t.queue.AddAfter(cache.MetaObjectToName(hpa), settle)
		}
	}
}

// work hands over what has settled, at its pace.
func (t *trigger) work(ctx context.Context) {
	for {
		key, shutdown := t.queue.Get()
		if shutdown {
			return
		}
		now := time.Now()
		if wait := t.last[key].Add(spacing).Sub(now); wait > 0 {
			t.queue.AddAfter(key, wait)
		} else if t.requeue(key) {
			klog.FromContext(ctx).V(4).Info("HPA is due after a new data point", "HPA", key)
			t.last[key] = now
		} else {
			delete(t.last, key)
		}
		t.queue.Done(key)
	}
}

// usesResourceMetrics tells whether the API that is watched has a say in the HPA.
func usesResourceMetrics(hpa *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(hpa.Spec.Metrics, func(metric autoscalingv2.MetricSpec) bool {
		return metric.Type == autoscalingv2.ResourceMetricSourceType || metric.Type == autoscalingv2.ContainerResourceMetricSourceType
	})
}
