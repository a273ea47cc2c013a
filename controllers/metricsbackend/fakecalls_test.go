// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const patchStatus = "patch status"

// call is a call of the operator's client.
type call struct {
	name  string
	write bool
}

// intercepted passes each call to do, which makes it or not.
func intercepted(do func(c call, make func() error) error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return do(call{name: fmt.Sprintf("get %T %s", o, key)}, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return do(call{name: fmt.Sprintf("list %T %s", l, l.GetObjectKind().GroupVersionKind().Kind)}, func() error { return c.List(ctx, l, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return do(call{fmt.Sprintf("apply %T", o), true}, func() error { return c.Apply(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return do(call{fmt.Sprintf("update %T %s", o, o.GetName()), true}, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return do(call{fmt.Sprintf("delete %T %s", o, o.GetName()), true}, func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return do(call{fmt.Sprintf("patch %T", o), true}, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
			return do(call{"create " + name, true}, func() error { return c.SubResource(name).Create(ctx, o, sub, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return do(call{patchStatus, true}, func() error { return c.SubResource(name).Patch(ctx, o, p, opts...) })
		},
	}
}
