// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// withGenerations gives Deployments a new generation when an apply changes their spec,
// like kube-apiserver and unlike a fake client. Without it, a rollout that has not
// started looks finished.
func withGenerations(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			asked, ok := o.(*appsv1ac.DeploymentApplyConfiguration)
			if !ok {
				return c.Apply(ctx, o, opts...)
			}
			key := client.ObjectKey{Namespace: *asked.GetNamespace(), Name: *asked.GetName()}
			before, now := &appsv1.Deployment{}, &appsv1.Deployment{}
			if err := c.Get(ctx, key, before); client.IgnoreNotFound(err) != nil {
				return err
			}
			if err := c.Apply(ctx, o, opts...); err != nil {
				return err
			}
			if err := c.Get(ctx, key, now); err != nil {
				return err
			}
			if !equality.Semantic.DeepEqual(before.Spec, now.Spec) {
				now.Generation = before.Generation + 1
				if err := c.Update(ctx, now); err != nil {
					return err
				}
			}
			// Return what is stored.
			asked.WithGeneration(now.Generation).WithResourceVersion(now.ResourceVersion)
			return nil
		},
	})
}
