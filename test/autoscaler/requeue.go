// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"sync"
	"time"

	autoscalinginformers "k8s.io/client-go/informers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"
)

// requeuing is an HPA informer that can be told to deliver an HPA once more. The controller's queue is its own, and
// the informer is the only way to it from outside: the controller queues at once what is added, while what is updated
// without a new generation waits for a whole sync period.
type requeuing struct {
	autoscalinginformers.HorizontalPodAutoscalerInformer
	informer *requeuingInformer
}

func newRequeuing(hpas autoscalinginformers.HorizontalPodAutoscalerInformer) requeuing {
	return requeuing{hpas, &requeuingInformer{SharedIndexInformer: hpas.Informer()}}
}

// Informer returns the informer whose handlers requeue reaches.
func (r requeuing) Informer() cache.SharedIndexInformer { return r.informer }

// requeue delivers an HPA as added, and reports whether there is one of that key.
func (r requeuing) requeue(key cache.ObjectName) bool { return r.informer.deliver(key.String()) }

type requeuingInformer struct {
	cache.SharedIndexInformer

	// mu keeps events one at a time and in order, as handlers may expect from an informer.
	mu       sync.Mutex
	handlers []cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod is the one by which the controller registers.
func (i *requeuingInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	registration, err := i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(inTurn{&i.mu, handler}, resync)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers = append(i.handlers, handler)
	return registration, nil
}

// deliver looks into the store in its turn: a deletion leaves the store first and is told afterwards, so no handler
// hears of an HPA after its end.
func (i *requeuingInformer) deliver(key string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	hpa, exists, err := i.GetStore().GetByKey(key)
	if err != nil || !exists {
		return false
	}
	for _, handler := range i.handlers {
		handler.OnAdd(hpa, false)
	}
	return true
}

// inTurn is a handler that waits for deliver.
type inTurn struct {
	mu      *sync.Mutex
	handler cache.ResourceEventHandler
}

// OnAdd passes an HPA that is new.
func (h inTurn) OnAdd(hpa any, initial bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler.OnAdd(hpa, initial)
}

// OnUpdate passes an HPA that has changed, or is resynced.
func (h inTurn) OnUpdate(before, after any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler.OnUpdate(before, after)
}

// OnDelete passes an HPA that is gone.
func (h inTurn) OnDelete(hpa any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handler.OnDelete(hpa)
}
