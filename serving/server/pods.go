// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// runningPods excludes finished pods: they use nothing, and may outnumber the others.
const runningPods = "status.phase!=" + string(corev1.PodFailed) + ",status.phase!=" + string(corev1.PodSucceeded)

// newPodInformer passes the metadata of pods to the store.
func newPodInformer(client metadata.Interface, table metaTable) *resourceInformer {
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	running := func(o metav1.ListOptions) metav1.ListOptions { o.FieldSelector = runningPods; return o }
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, running(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, running(o))
		},
	}, client)
	store := newPodStore(table)
	reflector := cache.NewReflectorWithOptions(source, &metav1.PartialObjectMetadata{}, store, cache.ReflectorOptions{Name: "pods"})
	return &resourceInformer{resource: "pods", watch: reflector.RunWithContext, handled: store.listed.Load}
}

// podStore is the store of a reflector. It passes the metadata of pods to the table, and
// keeps no objects: an informer's cache of them would be a fifth of serving's memory.
type podStore struct {
	table  metaTable
	labels *labelInterner
	// listed is set by the first Replace.
	listed atomic.Bool
}

var _ cache.TransformingStore = &podStore{}

func newPodStore(table metaTable) *podStore {
	return &podStore{table: table, labels: newLabelInterner()}
}

// Add implements cache.ReflectorStore.
func (s *podStore) Add(obj any) error {
	pod, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("store the metadata of a pod: it is a %T", obj)
	}
	s.table.SetMeta(keyOf(pod), &samplestore.Meta{
		UID: pod.UID, Labels: s.labels.intern(pod.Labels), Created: samplestore.TimeOf(pod.CreationTimestamp.Time),
	})
	return nil
}

// Update implements cache.ReflectorStore.
func (s *podStore) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s *podStore) Delete(obj any) error {
	pod, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("remove the metadata of a pod: it is a %T", obj)
	}
	s.table.DeleteMeta(keyOf(pod))
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *podStore) Replace(list []any, _ string) error {
	keys := sets.New[samplestore.Key]()
	for _, obj := range list {
		if err := s.Add(obj); err != nil {
			return err
		}
		keys.Insert(keyOf(obj.(*metav1.PartialObjectMetadata)))
	}
	s.table.RetainMeta(keys.Has)
	s.listed.Store(true)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *podStore) Resync() error { return nil }

// Transformer implements cache.TransformingStore: what a reflector collects before it calls
// Replace is trimmed, too.
func (s *podStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		pod, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return obj, nil
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: s.labels.intern(pod.Labels), CreationTimestamp: pod.CreationTimestamp,
		}}, nil
	}
}
