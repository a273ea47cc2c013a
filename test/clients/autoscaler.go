// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// watchAutoscaler sees each status that the controller writes.
func (c *Clients) watchAutoscaler(ctx context.Context) {
	name := c.options.Autoscaler
	source := cache.NewListWatchFromClient(c.core.AutoscalingV2().RESTClient(), "horizontalpodautoscalers",
		name.Namespace, fields.OneTermEqualSelector("metadata.name", name.Name))
	observe := func(object any) {
		hpa, ok := object.(*autoscalingv2.HorizontalPodAutoscaler)
		if !ok {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.result.AutoscalerStates++
		for _, condition := range hpa.Status.Conditions {
			if condition.Type == autoscalingv2.ScalingActive && condition.Status != corev1.ConditionTrue {
				c.result.fail("autoscaler %s at %s: ScalingActive is %s, %s: %s", name, clock(time.Now()),
					condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &autoscalingv2.HorizontalPodAutoscaler{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(_, now any) { observe(now) },
			DeleteFunc: func(any) { c.fail("autoscaler %s was deleted", name) },
		},
	})
	informer.RunWithContext(ctx)
}
