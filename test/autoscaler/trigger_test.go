// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"

	"github.com/metricsbackend/metrics-backend-operator/client"
)

// Which HPAs are due after a data point of the pod shop/web-1, and when, however many points come.
func TestTrigger(t *testing.T) {
	const point, ms = "app=web", time.Millisecond
	deployments, sets := schema.GroupResource{Group: "apps", Resource: "deployments"}, schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	type learn func(*targets)
	selects := func(selector string) learn {
		return func(t *targets) { t.learn(targetOf(hpa("web")), deployments, selector) }
	}
	ofType := func(kinds ...autoscalingv2.MetricSourceType) func(*autoscalingv2.HorizontalPodAutoscaler) {
		return func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.Metrics = nil
			for _, kind := range kinds {
				h.Spec.Metrics = append(h.Spec.Metrics, autoscalingv2.MetricSpec{Type: kind})
			}
		}
	}
	at := func(moments ...time.Duration) []time.Duration { return moments }
	for name, c := range map[string]struct {
		hpa    func(*autoscalingv2.HorizontalPodAutoscaler)
		learn  learn
		points []time.Duration
		kind   client.ChangeType
		want   []string
	}{
		"settles":                     {learn: selects("app=web"), points: at(0), want: []string{"100ms"}},
		"points of a node together":   {learn: selects("app=web"), points: at(0, 10*ms, 90*ms), want: []string{"100ms"}},
		"points of many nodes":        {learn: selects("app=web"), points: at(0, 200*ms, 400*ms, 2400*ms, 2600*ms), want: []string{"100ms", "1.1s", "2.5s", "3.5s"}},
		"pod dropped":                 {learn: selects("app=web"), points: at(0), kind: client.Dropped},
		"selector of others":          {learn: selects("app=db"), points: at(0)},
		"selector is not known":       {learn: func(*targets) {}, points: at(0)},
		"no selector is not any pod":  {learn: selects(""), points: at(0)},
		"selector cannot be read":     {learn: selects("app in"), points: at(0)},
		"selector changed":            {learn: func(t *targets) { selects("app=web")(t); selects("app=db")(t) }, points: at(0)},
		"one of two kinds of a name":  {learn: func(t *targets) { selects("app=db")(t); t.learn(targetOf(hpa("web")), sets, "app=web") }, points: at(0), want: []string{"100ms"}},
		"HPA of custom metrics":       {hpa: ofType(autoscalingv2.PodsMetricSourceType, autoscalingv2.ExternalMetricSourceType), learn: selects("app=web"), points: at(0)},
		"HPA of a container, too":     {hpa: ofType(autoscalingv2.PodsMetricSourceType, autoscalingv2.ContainerResourceMetricSourceType), learn: selects("app=web"), points: at(0), want: []string{"100ms"}},
		"HPA in another namespace":    {hpa: func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Namespace = "other" }, learn: selects("app=web"), points: at(0)},
		"HPA forgotten":               {learn: func(t *targets) { selects("app=web")(t); t.hpaDeleted(hpa("web")) }, points: at(0)},
		"HPA forgotten without state": {learn: func(t *targets) { selects("app=web")(t); t.hpaDeleted(cache.DeletedFinalStateUnknown{Obj: hpa("web")}) }, points: at(0)},
		"nothing forgotten":           {learn: func(t *targets) { selects("app=web")(t); t.hpaDeleted(cache.DeletedFinalStateUnknown{}) }, points: at(0), want: []string{"100ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watched, targets := hpa("web"), newTargets(nil)
				if c.hpa != nil {
					c.hpa(watched)
				}
				c.learn(targets)
				began := time.Now()
				var due []string
				trigger := newTrigger(listerOf(t, watched), targets, func(key cache.ObjectName) bool {
					if key.Name != watched.Name {
						t.Errorf("due: %s", key)
					}
					due = append(due, fmt.Sprint(time.Since(began)))
					return true
				})
				changes := make(chan client.Change[metricsv1.PodMetrics])
				var running sync.WaitGroup
				running.Go(func() { trigger.run(t.Context(), changes) })
				kind := client.Updated
				if c.kind != "" {
					kind = c.kind
				}
				for _, moment := range c.points {
					time.Sleep(time.Until(began.Add(moment)))
					changes <- client.Change[metricsv1.PodMetrics]{Type: kind, Object: pod("shop", "web-1", point, 0)}
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if diff := cmp.Diff(c.want, due); diff != "" {
					t.Error(diff)
				}
				close(changes)
				running.Wait()
			})
		})
	}
}

// What is gone is not remembered.
func TestTriggerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		targets := newTargets(nil)
		targets.learn(targetOf(hpa("web")), schema.GroupResource{Resource: "deployments"}, "app=web")
		exists := true
		trigger := newTrigger(listerOf(t, hpa("web")), targets, func(cache.ObjectName) bool { return exists })
		changes := make(chan client.Change[metricsv1.PodMetrics])
		var running sync.WaitGroup
		running.Go(func() { trigger.run(t.Context(), changes) })
		send := func() {
			changes <- client.Change[metricsv1.PodMetrics]{Type: client.Updated, Object: pod("shop", "web-1", "app=web", 0)}
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		send()
		if len(trigger.last) != 1 {
			t.Errorf("remembered: %v", trigger.last)
		}
		exists = false
		send()
		if len(trigger.last) != 0 {
			t.Errorf("remembered: %v", trigger.last)
		}
		close(changes)
		running.Wait()
	})
}

func listerOf(t *testing.T, hpas ...*autoscalingv2.HorizontalPodAutoscaler) autoscalinglisters.HorizontalPodAutoscalerLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, hpa := range hpas {
		if err := indexer.Add(hpa); err != nil {
			t.Fatal(err)
		}
	}
	return autoscalinglisters.NewHorizontalPodAutoscalerLister(indexer)
}
