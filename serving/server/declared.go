// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// declaredTarget takes what is declared beside the MetricsBackend.
type declaredTarget interface {
	declare(custom []*v1alpha1.CustomMetric, external []*v1alpha1.ExternalMetric)
	govern(ctx context.Context, policies []*v1alpha1.ExternalMetricsPolicy)
}

// declarations are what is declared beside the MetricsBackend, in one file with it.
type declarations struct {
	custom   []*v1alpha1.CustomMetric
	external []*v1alpha1.ExternalMetric
	policies []*v1alpha1.ExternalMetricsPolicy
}

// give hands everything to a target. Metrics and policies that came before are void.
func (d *declarations) give(ctx context.Context, to declaredTarget) {
	sortByName(d.custom)
	sortByName(d.external)
	sortByName(d.policies)
	for _, m := range d.custom {
		v1alpha1.SetCustomMetricDefaults(m)
	}
	for _, m := range d.external {
		v1alpha1.SetExternalMetricDefaults(m)
	}
	to.govern(ctx, d.policies)
	to.declare(d.custom, d.external)
}

// declaredFollower follows what is declared in the cluster. Where a CRD is missing
// there is nothing of it.
type declaredFollower struct {
	target   declaredTarget
	custom   *objectInformer[*v1alpha1.CustomMetric]
	external *objectInformer[*v1alpha1.ExternalMetric]
	policies *objectInformer[*v1alpha1.ExternalMetricsPolicy]

	mu   sync.Mutex
	last declarations
}

func newDeclaredFollower(config *rest.Config, target declaredTarget) (*declaredFollower, error) {
	client, err := backendClient(config)
	if err != nil {
		return nil, err
	}
	f := &declaredFollower{target: target}
	if f.custom, err = declaredObjects(client, "CustomMetrics", "custommetrics", &v1alpha1.CustomMetric{}, f.setCustom); err != nil {
		return nil, err
	}
	if f.external, err = declaredObjects(client, "ExternalMetrics", "externalmetrics", &v1alpha1.ExternalMetric{}, f.setExternal); err != nil {
		return nil, err
	}
	if f.policies, err = declaredObjects(client, "ExternalMetricsPolicies", "externalmetricspolicies", &v1alpha1.ExternalMetricsPolicy{}, target.govern); err != nil {
		return nil, err
	}
	return f, nil
}

func declaredObjects[T metaObject](client rest.Interface, what, resource string, example T, apply func(context.Context, []T)) (*objectInformer[T], error) {
	source := cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything())
	o, err := newObjectInformer(what, resource+"."+v1alpha1.GroupName, source, example, apply)
	if err != nil {
		return nil, fmt.Errorf("follow what is declared beside the MetricsBackend: %w", err)
	}
	return o, nil
}

func (f *declaredFollower) setCustom(_ context.Context, all []*v1alpha1.CustomMetric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last.custom = all
	f.target.declare(f.last.custom, f.last.external)
}

func (f *declaredFollower) setExternal(_ context.Context, all []*v1alpha1.ExternalMetric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last.external = all
	f.target.declare(f.last.custom, f.last.external)
}

// run follows everything until the context ends.
func (f *declaredFollower) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { f.custom.run(ctx) })
	running.Go(func() { f.external.run(ctx) })
	running.Go(func() { f.policies.run(ctx) })
	running.Wait()
}

// read returns nil once it is known what is declared.
func (f *declaredFollower) read() error {
	for _, of := range []*followed{&f.policies.followed, &f.custom.followed, &f.external.followed} {
		if err := of.read(); err != nil {
			return fmt.Errorf("%s: %w", of.what, err)
		}
	}
	return nil
}
