// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// NewClient is a client that writes as fast as the API server takes it: protobuf,
// and no rate limit but the Writer's concurrency.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.UserAgent = "metrics-backend-fleet"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of %s: %w", config.Host, err)
	}
	return client, nil
}

// Writer writes the fleet's objects to an API server that has none of them.
type Writer struct {
	client      kubernetes.Interface
	fleet       *Fleet
	concurrency int
}

// NewWriter with at most that many requests in flight, default 32.
func NewWriter(client kubernetes.Interface, fleet *Fleet, concurrency int) *Writer {
	setDefault(&concurrency, 32)
	return &Writer{client: client, fleet: fleet, concurrency: concurrency}
}

// Sync creates the namespaces, nodes and pods of the started fleet.
func (w *Writer) Sync(ctx context.Context) error {
	for _, name := range w.fleet.Namespaces() {
		if err := w.putNamespace(ctx, name); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(w.concurrency)
	for _, n := range w.fleet.Nodes() {
		group.Go(func() error { return w.putNode(ctx, n) })
		for _, pod := range n.Pods() {
			group.Go(func() error { return w.putPod(ctx, pod, n) })
		}
	}
	return group.Wait()
}

// putNamespace creates a namespace and its default ServiceAccount, without which
// admission refuses pods: no controller manager makes one.
func (w *Writer) putNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	if _, err := w.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating ServiceAccount %s/default: %w", name, err)
	}
	return nil
}

// putNode creates the Node. Unlike a pod's, a node's status is taken from the create.
func (w *Writer) putNode(ctx context.Context, n *Node) error {
	if _, err := w.client.CoreV1().Nodes().Create(ctx, w.fleet.NodeObject(n), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating node %s: %w", n.Name, err)
	}
	return nil
}

// putPod creates the Pod and then writes its status, which a create drops.
func (w *Writer) putPod(ctx context.Context, p *Pod, n *Node) error {
	pods, wanted := w.client.CoreV1().Pods(p.Namespace), w.fleet.PodObject(p, n)
	pod, err := pods.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating pod %s: %w", p.Key(), err)
	}
	pod.Status = wanted.Status
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", p.Key(), err)
	}
	return nil
}
