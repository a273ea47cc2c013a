// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/metricsbackend/metrics-backend-operator/serving/kubelet"
	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// metaTable stores the metadata of a kind of object.
type metaTable interface {
	SetMeta(samplestore.Key, *samplestore.Meta)
	DeleteMeta(samplestore.Key)
	RetainMeta(keep func(samplestore.Key) bool)
}

// nodeTarget receives the nodes to scrape.
type nodeTarget interface {
	SetNode(*kubelet.Node)
	DeleteNode(name string)
}

// resourceInformer lists and watches a resource.
type resourceInformer struct {
	resource string
	// watch runs until its context ends.
	watch func(context.Context)
	// handled reports whether the complete first list was received and handled.
	handled cache.InformerSynced
	// after, if set, delays the informer until it returns true.
	after cache.InformerSynced
}

// run runs the informer until the context ends.
func (f *resourceInformer) run(ctx context.Context) {
	if f.after == nil || cache.WaitForCacheSync(ctx.Done(), f.after) {
		f.watch(ctx)
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
	nodes := newNodeInformer(typed, store.Nodes, scraper)
	pods := newPodInformer(partial, store.Pods)
	// The store drops points of unknown pods. If nodes were scraped first, they would have
	// rates while lists of pods are empty until the next samples.
	nodes.after = pods.handled
	return informerGate{pods, nodes}, nil
}

// newNodeInformer passes nodes to the store and the scraper.
func newNodeInformer(client kubernetes.Interface, table metaTable, scraper nodeTarget) *resourceInformer {
	informer := coreinformers.NewNodeInformer(client, 0, cache.Indexers{})
	// Only an informer that was started refuses these.
	utilruntime.Must(informer.SetTransform(trimNode()))
	registration, err := informer.AddEventHandler(nodeEvents(table, scraper))
	utilruntime.Must(err)
	// The informer's own HasSynced is earlier than that of its handler.
	return &resourceInformer{resource: "nodes", watch: informer.RunWithContext, handled: registration.HasSynced}
}

func nodeEvents(table metaTable, scraper nodeTarget) cache.ResourceEventHandler {
	// Most updates are heartbeats, which change nothing here: table and scraper compare.
	set := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok {
			table.SetMeta(keyOf(node), &samplestore.Meta{UID: node.UID, Labels: node.Labels})
			scraper.SetNode(kubelet.NodeFrom(node))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				table.DeleteMeta(samplestore.Key(name))
				scraper.DeleteNode(name.Name)
			}
		},
	}
}

func keyOf(o metav1.Object) samplestore.Key { return samplestore.Key(cache.MetaObjectToName(o)) }
