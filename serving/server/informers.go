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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// runningPods excludes finished pods: they use nothing, and may outnumber the others.
const runningPods = "status.phase!=" + string(corev1.PodFailed) + ",status.phase!=" + string(corev1.PodSucceeded)

// metaTable stores the metadata of a kind of object.
type metaTable interface {
	SetMeta(samplestore.Key, *samplestore.Meta)
	DeleteMeta(samplestore.Key)
}

// nodeTarget receives the nodes to scrape.
type nodeTarget interface {
	SetNode(*kubelet.Node)
	DeleteNode(name string)
}

// resourceInformer is an informer with its handler.
type resourceInformer struct {
	resource string
	informer cache.SharedIndexInformer
	// handled reports whether the handler has received the complete first list, which is
	// later than the informer's own HasSynced.
	handled cache.InformerSynced
	// after, if set, delays the informer until it returns true.
	after cache.InformerSynced
}

// run runs the informer until the context ends.
func (f *resourceInformer) run(ctx context.Context) {
	if f.after == nil || cache.WaitForCacheSync(ctx.Done(), f.after) {
		f.informer.RunWithContext(ctx)
	}
}

// informerGate is open once the informers have delivered their first lists. It implements
// readiness.Gate.
type informerGate []*resourceInformer

// Name implements readiness.Gate.
func (informerGate) Name() string { return "informers" }

// Check implements readiness.Gate.
func (g informerGate) Check(context.Context) error {
	for _, f := range g {
		if !f.handled() {
			return fmt.Errorf("waiting for the list of %s from kube-apiserver: it must be reachable, and this account needs list and watch on %s", f.resource, f.resource)
		}
	}
	return nil
}

// newInformers returns the informers of nodes and pods.
func newInformers(client *rest.Config, store *samplestore.Store, scraper *kubelet.Source) (informerGate, error) {
	typed, err := kubernetes.NewForConfig(withProtobuf(client))
	if err != nil {
		return nil, fmt.Errorf("make a client of nodes: %w", err)
	}
	partial, err := metadata.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("make a client of pod metadata: %w", err)
	}
	nodes, err := newNodeInformer(typed, store.Nodes, scraper)
	if err != nil {
		return nil, err
	}
	pods, err := newPodInformer(partial, store.Pods)
	if err != nil {
		return nil, err
	}
	// The store drops points of unknown pods. If nodes were scraped first, they would have
	// rates while lists of pods are empty until the next samples.
	nodes.after = pods.handled
	return informerGate{pods, nodes}, nil
}

func newInformer(resource string, informer cache.SharedIndexInformer, transform cache.TransformFunc, handler cache.ResourceEventHandler) (*resourceInformer, error) {
	if err := informer.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("trim %s: %w", resource, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", resource, err)
	}
	return &resourceInformer{resource: resource, informer: informer, handled: registration.HasSynced}, nil
}

// newNodeInformer passes nodes to the store and the scraper.
func newNodeInformer(client kubernetes.Interface, table metaTable, scraper nodeTarget) (*resourceInformer, error) {
	informer := coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	return newInformer("nodes", informer, trimNode(informer.GetIndexer()), nodeEvents(table, scraper))
}

func nodeEvents(table metaTable, scraper nodeTarget) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok {
				table.SetMeta(keyOf(node), metaOf(node))
				scraper.SetNode(kubelet.NodeFrom(node))
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
				scraper.SetNode(kubelet.NodeFrom(node))
			}
		},
		DeleteFunc: func(obj any) {
			if key, ok := deletedKey(obj); ok {
				table.DeleteMeta(key)
				scraper.DeleteNode(key.Name)
			}
		},
	}
}

// newPodInformer passes the metadata of pods to the store.
func newPodInformer(client metadata.Interface, table metaTable) (*resourceInformer, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("pods"),
		metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.FieldSelector = runningPods }).Informer()
	return newInformer("pods", informer, trimPod(informer.GetIndexer()), podEvents(table))
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

// metaObject is the part of metav1.Object that the store needs.
type metaObject interface {
	GetNamespace() string
	GetName() string
	GetUID() types.UID
	GetLabels() map[string]string
}

func keyOf(o metaObject) samplestore.Key {
	return samplestore.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// metaOf shares the labels, which neither side changes.
func metaOf(o metaObject) *samplestore.Meta {
	return &samplestore.Meta{UID: o.GetUID(), Labels: o.GetLabels()}
}

func metaChanged(old, current metaObject) bool {
	return old.GetUID() != current.GetUID() || !maps.Equal(old.GetLabels(), current.GetLabels())
}

// nodeChanged reports whether a trimmed node differs in more than its resourceVersion.
func nodeChanged(old, current *corev1.Node) bool {
	return metaChanged(old, current) ||
		!maps.Equal(old.Annotations, current.Annotations) ||
		!equality.Semantic.DeepEqual(old.Status, current.Status)
}

// deletedKey returns the key of a deleted object or its tombstone.
func deletedKey(obj any) (samplestore.Key, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		namespace, name, err := cache.SplitMetaNamespaceKey(tombstone.Key)
		return samplestore.Key{Namespace: namespace, Name: name}, err == nil
	}
	o, ok := obj.(metaObject)
	if !ok {
		return samplestore.Key{}, false
	}
	return keyOf(o), true
}
