// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// A requeued HPA is an addition of what is in the store, in turn with what the informer itself tells, and never comes
// after its deletion.
func TestRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := fake.NewClientset(hpa("web"))
		factory := informers.NewSharedInformerFactory(core, 0)
		requeuing := newRequeuing(factory.Autoscaling().V2().HorizontalPodAutoscalers())
		var mu sync.Mutex
		var events []string
		record := func(what string, object any) {
			if !mu.TryLock() {
				t.Error("two events at once")
				return
			}
			defer mu.Unlock()
			events = append(events, what+" "+object.(*autoscalingv2.HorizontalPodAutoscaler).Name)
		}
		if _, err := requeuing.Informer().AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, initial bool) {
				if initial {
					record("initial", object)
				} else {
					record("add", object)
				}
			},
			UpdateFunc: func(_, object any) { record("update", object) },
			DeleteFunc: func(object any) { record("delete", object) },
		}, time.Minute); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory.StartWithContext(ctx)
		defer func() { cancel(); factory.Shutdown() }()
		synctest.Wait()
		hpas, web := core.AutoscalingV2().HorizontalPodAutoscalers("shop"), cache.NewObjectName("shop", "scales-web")
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, events); diff != "" {
				t.Error(diff)
			}
			events = nil
		}
		expect("initial scales-web")

		if !requeuing.requeue(web) {
			t.Error("the HPA is not known")
		}
		if requeuing.requeue(cache.NewObjectName("other", "scales-web")) {
			t.Error("an HPA of another namespace is known")
		}
		expect("add scales-web")

		changed := hpa("web")
		changed.Labels = map[string]string{"changed": "yes"}
		if _, err := hpas.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect("update scales-web")

		// Many at once with the deletion: whatever the order is, the deletion is last.
		var storm sync.WaitGroup
		for range 50 {
			storm.Go(func() { requeuing.requeue(web) })
		}
		if err := hpas.Delete(t.Context(), "scales-web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		storm.Wait()
		synctest.Wait()
		if i := slices.Index(events, "delete scales-web"); i != len(events)-1 {
			t.Errorf("events after the deletion: %v", events)
		}
		if requeuing.requeue(web) {
			t.Error("the HPA is known after its deletion")
		}
	})
}
