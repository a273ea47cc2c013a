// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// runningPods leaves out pods that have ended: they use nothing, and a cluster
// may hold many times more of them than of others.
const runningPods = "status.phase!=" + string(corev1.PodFailed) + ",status.phase!=" + string(corev1.PodSucceeded)

// metaTable takes the metadata of a kind of object.
type metaTable interface {
	SetMeta(samplestore.Key, *samplestore.Meta)
	DeleteMeta(samplestore.Key)
}

// nodeSet takes the nodes to scrape.
type nodeSet interface {
	SetNode(*kubelet.Node)
	DeleteNode(name string)
}

// feed is an informer and the handler that carries its objects on.
type feed struct {
	resource string
	informer cache.SharedIndexInformer
	// handled is true once the handler has seen the whole first list, which is
	// later than the informer's own HasSynced.
	handled cache.InformerSynced
	// after holds the informer back until another feed was handled; nil where nothing does.
	after cache.InformerSynced
}

// run runs the informer until the context ends.
func (f *feed) run(ctx context.Context) {
	if f.after == nil || cache.WaitForCacheSync(ctx.Done(), f.after) {
		f.informer.RunWithContext(ctx)
	}
}

// syncGate is open once the informers have delivered their first lists. It implements
// readiness.Gate.
type syncGate []*feed

// Name implements readiness.Gate.
func (syncGate) Name() string { return "informers" }

// Check implements readiness.Gate.
func (g syncGate) Check(context.Context) error {
	for _, f := range g {
		if !f.handled() {
			return fmt.Errorf("waiting for the list of %s from kube-apiserver: it must be reachable, and this account needs list and watch on %s", f.resource, f.resource)
		}
	}
	return nil
}

func newFeed(resource string, informer cache.SharedIndexInformer, transform cache.TransformFunc, handler cache.ResourceEventHandler) (*feed, error) {
	if err := informer.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("trim %s: %w", resource, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("follow %s: %w", resource, err)
	}
	return &feed{resource: resource, informer: informer, handled: registration.HasSynced}, nil
}

// newNodeFeed carries nodes to the store and to the scrapes.
func newNodeFeed(client kubernetes.Interface, table metaTable, scraped nodeSet) (*feed, error) {
	informer := coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	return newFeed("nodes", informer, trimNode(informer.GetIndexer()), nodeEvents(table, scraped))
}

func nodeEvents(table metaTable, scraped nodeSet) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok {
				table.SetMeta(keyOf(node), metaOf(node))
				scraped.SetNode(kubelet.NodeFrom(node))
			}
		},
		UpdateFunc: func(before, after any) {
			old, wasNode := before.(*corev1.Node)
			node, isNode := after.(*corev1.Node)
			if !wasNode || !isNode {
				return
			}
			if metaChanged(old, node) {
				table.SetMeta(keyOf(node), metaOf(node))
			}
			if nodeChanged(old, node) {
				scraped.SetNode(kubelet.NodeFrom(node))
			}
		},
		DeleteFunc: func(obj any) {
			if key, ok := deletedKey(obj); ok {
				table.DeleteMeta(key)
				scraped.DeleteNode(key.Name)
			}
		},
	}
}

// newPodFeed carries the metadata of pods to the store.
func newPodFeed(client metadata.Interface, table metaTable) (*feed, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("pods"),
		metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.FieldSelector = runningPods }).Informer()
	return newFeed("pods", informer, trimPod(informer.GetIndexer()), podEvents(table))
}

func podEvents(table metaTable) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*metav1.PartialObjectMetadata); ok {
				table.SetMeta(keyOf(pod), metaOf(pod))
			}
		},
		UpdateFunc: func(before, after any) {
			old, wasPod := before.(*metav1.PartialObjectMetadata)
			pod, isPod := after.(*metav1.PartialObjectMetadata)
			if wasPod && isPod && metaChanged(old, pod) {
				table.SetMeta(keyOf(pod), metaOf(pod))
			}
		},
		DeleteFunc: func(obj any) {
			if key, ok := deletedKey(obj); ok {
				table.DeleteMeta(key)
			}
		},
	}
}

// trimNode keeps of a node what the store and the scrapes need.
func trimNode(known cache.Store) cache.TransformFunc {
	sharing := newLabelSharing()
	return func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		trimmed := &corev1.Node{ObjectMeta: trimMeta(&node.ObjectMeta, known, sharing)}
		if path, ok := node.Annotations[v1alpha1.AnnotationMetricsPath]; ok {
			trimmed.Annotations = map[string]string{v1alpha1.AnnotationMetricsPath: path}
		}
		trimmed.Status.Addresses = node.Status.Addresses
		trimmed.Status.DaemonEndpoints = node.Status.DaemonEndpoints
		return trimmed, nil
	}
}

// trimPod keeps of a pod what the store needs.
func trimPod(known cache.Store) cache.TransformFunc {
	sharing := newLabelSharing()
	return func(obj any) (any, error) {
		pod, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return obj, nil
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: trimMeta(&pod.ObjectMeta, known, sharing)}, nil
	}
}

// trimMeta keeps the identity, the labels, and the resourceVersion, without which
// an informer takes every update for a resync. Labels that did not change stay
// the map that the object had before, which is the one that the store holds.
func trimMeta(meta *metav1.ObjectMeta, known cache.Store, sharing *labelSharing) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{
		Namespace:       meta.Namespace,
		Name:            meta.Name,
		UID:             meta.UID,
		ResourceVersion: meta.ResourceVersion,
	}
	if obj, ok, err := known.GetByKey(cache.MetaObjectToName(meta).String()); ok && err == nil {
		if before, ok := obj.(metav1.Object); ok && maps.Equal(before.GetLabels(), meta.Labels) {
			trimmed.Labels = before.GetLabels()
			return trimmed
		}
	}
	trimmed.Labels = sharing.share(meta.Labels)
	return trimmed
}

// object is the part of metav1.Object that decides about metadata.
type object interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetLabels() map[string]string
}

func keyOf(o object) samplestore.Key {
	return samplestore.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// metaOf shares the labels: neither side changes them.
func metaOf(o object) *samplestore.Meta {
	return &samplestore.Meta{UID: o.GetUID(), Labels: o.GetLabels()}
}

func metaChanged(old, current object) bool {
	return old.GetUID() != current.GetUID() || !maps.Equal(old.GetLabels(), current.GetLabels())
}

// nodeChanged says that a trimmed node differs in more than its resourceVersion.
func nodeChanged(old, current *corev1.Node) bool {
	return metaChanged(old, current) ||
		!maps.Equal(old.Annotations, current.Annotations) ||
		!equality.Semantic.DeepEqual(old.Status, current.Status)
}

// deletedKey also reads the tombstone of an object whose deletion was missed.
func deletedKey(obj any) (samplestore.Key, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		namespace, name, err := cache.SplitMetaNamespaceKey(tombstone.Key)
		return samplestore.Key{Namespace: namespace, Name: name}, err == nil
	}
	o, ok := obj.(object)
	if !ok {
		return samplestore.Key{}, false
	}
	return keyOf(o), true
}
