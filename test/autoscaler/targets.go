// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
)

// targets is the scale client, and remembers the pods' selectors of what the controller asks for: it reads the scale
// of an HPA's target before each decision, and nothing else tells which pods an HPA looks at.
//
// Two targets of one name, a Deployment and a StatefulSet, are kept as one: a data point that is taken for both
// costs a reconciliation too many, and asking discovery which of them an HPA means would cost more.
type targets struct {
	scale.ScalesGetter

	mu        sync.RWMutex
	selectors map[types.NamespacedName]map[schema.GroupResource]labels.Selector
}

func newTargets(scales scale.ScalesGetter) *targets {
	return &targets{ScalesGetter: scales, selectors: map[types.NamespacedName]map[schema.GroupResource]labels.Selector{}}
}

// Scales returns the scale client of one namespace.
func (t *targets) Scales(namespace string) scale.ScaleInterface {
	return overheard{t.ScalesGetter.Scales(namespace), namespace, t}
}

type overheard struct {
	scale.ScaleInterface
	namespace string
	targets   *targets
}

func (o overheard) Get(ctx context.Context, resource schema.GroupResource, name string, options metav1.GetOptions) (*autoscalingv1.Scale, error) {
	got, err := o.ScaleInterface.Get(ctx, resource, name, options)
	if err == nil {
		o.targets.learn(types.NamespacedName{Namespace: o.namespace, Name: name}, resource, got.Status.Selector)
	}
	return got, err
}

func (t *targets) learn(target types.NamespacedName, resource schema.GroupResource, selector string) {
	parsed, err := labels.Parse(selector)
	if err != nil || selector == "" {
		// The controller reports it, in the HPA's conditions.
		parsed = labels.Nothing()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.selectors[target] == nil {
		t.selectors[target] = map[schema.GroupResource]labels.Selector{}
	}
	t.selectors[target][resource] = parsed
}

// hpaDeleted forgets the target of an HPA that is gone, with or without its last state. Another HPA that has the same
// target makes it known again at its next sync.
func (t *targets) hpaDeleted(gone any) {
	if unknown, ok := gone.(cache.DeletedFinalStateUnknown); ok {
		gone = unknown.Obj
	}
	hpa, ok := gone.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.selectors, targetOf(hpa))
}

func targetOf(hpa *autoscalingv2.HorizontalPodAutoscaler) types.NamespacedName {
	return types.NamespacedName{Namespace: hpa.Namespace, Name: hpa.Spec.ScaleTargetRef.Name}
}

// match tells whether a pod of these labels belongs to the target, as far as is known.
func (t *targets) match(target types.NamespacedName, pod map[string]string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, selector := range t.selectors[target] {
		if selector.Matches(labels.Set(pod)) {
			return true
		}
	}
	return false
}
