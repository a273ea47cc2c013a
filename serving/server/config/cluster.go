// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// clusterWatcher watches one MetricsBackend and all declared metrics and policies. If the
// CRD of a kind is missing there are no objects of it.
type clusterWatcher struct {
	apply func(ctx context.Context, origin string, backend *v1alpha1.MetricsBackend)
	// applyDefaults is called if there is no MetricsBackend at first.
	applyDefaults func(context.Context)
	target        Target

	backend  *ObjectInformer[*v1alpha1.MetricsBackend]
	custom   *ObjectInformer[*v1alpha1.CustomMetric]
	external *ObjectInformer[*v1alpha1.ExternalMetric]
	policies *ObjectInformer[*v1alpha1.ExternalMetricsPolicy]

	// current is the MetricsBackend that was applied last; nil after its deletion.
	current *v1alpha1.MetricsBackend

	mu       sync.Mutex
	declared declarations
}

// newClusterWatcher calls apply with the named MetricsBackend and after each change of its
// spec, but not when it is deleted: its settings stay.
func newClusterWatcher(config *rest.Config, name string, apply func(context.Context, string, *v1alpha1.MetricsBackend), applyDefaults func(context.Context), target Target) (*clusterWatcher, error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	c := &clusterWatcher{apply: apply, applyDefaults: applyDefaults, target: target}
	byName := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	c.backend = newCRInformer(client, "MetricsBackend "+name, "metricsbackends", byName, &v1alpha1.MetricsBackend{}, c.applyBackend)
	all := fields.Everything()
	c.custom = newCRInformer(client, "CustomMetrics", "custommetrics", all, &v1alpha1.CustomMetric{}, c.setCustom)
	c.external = newCRInformer(client, "ExternalMetrics", "externalmetrics", all, &v1alpha1.ExternalMetric{}, c.setExternal)
	c.policies = newCRInformer(client, "ExternalMetricsPolicies", "externalmetricspolicies", all, &v1alpha1.ExternalMetricsPolicy{}, target.Policies)
	return c, nil
}

func newCRInformer[T metaObject](client rest.Interface, what, resource string, selector fields.Selector, example T, apply func(context.Context, []T)) *ObjectInformer[T] {
	source := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, selector)
	return NewObjectInformer(what, resource+"."+v1alpha1.GroupName, source, example, apply)
}

// run watches until the context ends.
func (c *clusterWatcher) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, run := range []func(context.Context){c.backend.Run, c.custom.Run, c.external.Run, c.policies.Run} {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
}

// applyBackend applies the MetricsBackend if its spec has changed, whether resource metrics are
// served, or whether a kubelet was verified: the generation stays when only the status is written, and starts over when the
// object is created again.
func (c *clusterWatcher) applyBackend(ctx context.Context, all []*v1alpha1.MetricsBackend) {
	before := c.current
	c.current = nil
	if len(all) > 0 {
		c.current = all[0]
	}
	switch {
	case c.current == nil && before == nil:
		c.applyDefaults(ctx)
	case c.current == nil:
		klog.FromContext(ctx).Info("The MetricsBackend was deleted; its settings stay", "metricsBackend", klog.KObj(before))
	case c.current != nil && (before == nil || settingsChanged(before, c.current)):
		c.apply(ctx, "cluster", c.current)
	}
}

func (c *clusterWatcher) setCustom(ctx context.Context, all []*v1alpha1.CustomMetric) {
	used := limitMetrics(ctx, c.custom.what, all)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared.custom = used
	c.target.Metrics(c.declared.custom, c.declared.external)
}

func (c *clusterWatcher) setExternal(ctx context.Context, all []*v1alpha1.ExternalMetric) {
	used := limitMetrics(ctx, c.external.what, all)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.declared.external = used
	c.target.Metrics(c.declared.custom, c.declared.external)
}

// limitMetrics returns the metrics that are used. The operator sets a condition on the rest.
func limitMetrics[T metaObject](ctx context.Context, what string, all []T) []T {
	used, rest := v1alpha1.LimitMetrics(all)
	if len(rest) > 0 {
		klog.FromContext(ctx).V(2).Info("There are more "+what+" than are used", "used", len(used), "unused", len(rest))
	}
	return used
}

// declaredApplied returns nil once all declared metrics and policies are applied.
func (c *clusterWatcher) declaredApplied() error {
	for _, o := range []struct {
		what       string
		hasApplied func() error
	}{{c.policies.what, c.policies.hasApplied}, {c.custom.what, c.custom.hasApplied}, {c.external.what, c.external.hasApplied}} {
		if err := o.hasApplied(); err != nil {
			return fmt.Errorf("%s: %w", o.what, err)
		}
	}
	return nil
}

// newClient returns a client of metricsbackend.io/v1alpha1.
func newClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register %s: %w", v1alpha1.GroupVersion, err)
	}
	config = rest.CopyConfig(config)
	config.APIPath = "/apis"
	config.GroupVersion = &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of %s: %w", v1alpha1.GroupVersion, err)
	}
	return client, nil
}
