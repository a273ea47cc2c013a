// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// listPage is the number of metrics that are decoded at a time if kube-apiserver does not
// stream a list.
const listPage = 500

// metric is what is kept of a CustomMetric or an ExternalMetric. Teams choose their number: once the
// status of one beyond the limits says so, only its identity and its age are kept.
type metric struct {
	metav1.ObjectMeta
	kind string
	// told is set if the status says, for this generation, that the metric is beyond the limits.
	told bool
	// unused is set for a metric beyond the limits. Only Poll uses it.
	unused bool
	// status is toldStatus if the metric's own says that it is beyond the limits.
	status *v1alpha1.DeclaredMetricStatus
}

var toldStatus = v1alpha1.DeclaredMetricStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}}

// newMetric returns the metric of an object, nil of any other.
func newMetric(obj any) *metric {
	switch o := obj.(type) {
	case *v1alpha1.CustomMetric:
		return &metric{ObjectMeta: trimMeta(&o.ObjectMeta), kind: kindCustom, status: new(o.Status)}
	case *v1alpha1.ExternalMetric:
		return &metric{ObjectMeta: trimMeta(&o.ObjectMeta), kind: kindExternal, status: new(o.Status)}
	}
	return nil
}

// trim removes what is not read from an object: teams choose its size.
func trim(obj runtime.Object) error {
	switch o := obj.(type) {
	case *v1alpha1.CustomMetric:
		o.ObjectMeta, o.Spec = trimMeta(&o.ObjectMeta), v1alpha1.CustomMetricSpec{}
	case *v1alpha1.ExternalMetric:
		o.ObjectMeta, o.Spec = trimMeta(&o.ObjectMeta), v1alpha1.ExternalMetricSpec{}
	}
	return nil
}

// object returns an object of the metric that has only metadata and a status.
func (m *metric) object(status v1alpha1.DeclaredMetricStatus) client.Object {
	if m.kind == kindCustom {
		return &v1alpha1.CustomMetric{ObjectMeta: m.ObjectMeta, Status: status}
	}
	return &v1alpha1.ExternalMetric{ObjectMeta: m.ObjectMeta, Status: status}
}

func trimMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, ResourceVersion: m.ResourceVersion,
	}
}

// transform is a cache.TransformFunc that returns the metric of an object.
func transform(obj any) (any, error) {
	m := newMetric(obj)
	if m == nil {
		return obj, nil // transformed before, or deleted
	}
	if ready := meta.FindStatusCondition(m.status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Reason == v1alpha1.ReasonTooManyMetrics {
		m.told = ready.Message == tooMany[m.kind].problem.message && m.status.ObservedGeneration == m.Generation
		m.status = &toldStatus
	}
	return m, nil
}

// newInformer returns an informer whose store has a metric for each object.
func (c *Controller) newInformer(example client.Object, list client.ObjectList) cache.SharedIndexInformer {
	newList := func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) }
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				page := newList()
				if err := c.Live.List(ctx, page, &client.ListOptions{Limit: o.Limit, Continue: o.Continue, Raw: &o}); err != nil {
					return nil, err
				}
				return page, meta.EachListItem(page, trim)
			})
			pages.FullListIfExpired = false // the reflector lists again
			// From its watch cache kube-apiserver would return all at once.
			all, _, err := pages.ListWithAlloc(ctx, metav1.ListOptions{Limit: listPage})
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.Live.Watch(ctx, newList(), &client.ListOptions{Raw: &o})
		},
	}, example, 0, nil)
	_ = informer.SetTransform(transform) // fails only once it runs
	return informer
}

// listLimited returns the metrics of an informer, and marks those beyond the limits.
func listLimited(informer cache.SharedIndexInformer) []*metric {
	var all []*metric
	for _, o := range informer.GetStore().List() {
		if m, ok := o.(*metric); ok {
			m.unused = false
			all = append(all, m)
		}
	}
	_, rest := v1alpha1.LimitMetrics(all)
	for _, m := range rest {
		m.unused = true
	}
	return all
}
