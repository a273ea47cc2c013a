// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// backendFollower watches one MetricsBackend. client-go's reflector does the
// work, with its backoff: a missing CRD, a missing permission and a silent
// kube-apiserver all end in another try, and the log tells each once.
type backendFollower struct {
	followed
	name     string
	informer cache.SharedIndexInformer
	apply    func(context.Context, *v1alpha1.MetricsBackend)
}

// newBackendFollower calls apply with the object as it is, and after each change
// of its spec. It calls nothing when the object is deleted.
func newBackendFollower(config *rest.Config, name string, apply func(context.Context, *v1alpha1.MetricsBackend)) (*backendFollower, error) {
	client, err := backendClient(config)
	if err != nil {
		return nil, err
	}
	source := cache.NewFilteredListWatchFromClient(client, "metricsbackends", metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	})
	f := &backendFollower{
		followed: followed{what: "MetricsBackend " + name, resource: "metricsbackends." + v1alpha1.GroupName},
		name:     name,
		apply:    apply,
		informer: cache.NewSharedIndexInformer(source, &v1alpha1.MetricsBackend{}, 0, nil),
	}
	if err := f.informer.SetWatchErrorHandlerWithContext(f.failed); err != nil {
		return nil, fmt.Errorf("watch MetricsBackend %s: %w", name, err)
	}
	return f, nil
}

// run follows the object until the context ends.
func (f *backendFollower) run(ctx context.Context) {
	handler, err := f.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { f.changed(ctx, nil, obj) },
		UpdateFunc: func(old, obj any) { f.changed(ctx, old, obj) },
		DeleteFunc: func(any) {
			klog.FromContext(ctx).Info("The MetricsBackend was deleted; its settings stay in force", "metricsBackend", klog.KRef("", f.name))
		},
	})
	if err != nil {
		// Only an informer that has ended refuses a handler.
		klog.FromContext(ctx).Error(err, "Cannot follow the MetricsBackend", "metricsBackend", klog.KRef("", f.name))
		return
	}
	handled := cache.InformerSynced(handler.HasSynced)
	f.handled.Store(&handled)
	f.informer.RunWithContext(ctx)
}

func (f *backendFollower) changed(ctx context.Context, old, obj any) {
	f.seen()
	backend, ok := obj.(*v1alpha1.MetricsBackend)
	if !ok {
		return
	}
	// The generation stays when only the status was written; an object that was
	// deleted and created again starts over at the same one.
	if before, ok := old.(*v1alpha1.MetricsBackend); ok && before.UID == backend.UID && before.Generation == backend.Generation {
		return
	}
	f.apply(ctx, backend)
}

// backendClient reads metricsbackend.io/v1alpha1.
func backendClient(config *rest.Config) (rest.Interface, error) {
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
