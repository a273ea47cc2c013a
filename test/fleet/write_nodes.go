// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/pager"
)

// syncNamespaces creates each namespace and its default ServiceAccount, without
// which admission refuses pods: where a controller manager runs it would come
// too, only later.
func (w *Writer) syncNamespaces(ctx context.Context) error {
	for _, name := range w.fleet.Namespaces() {
		if err := w.putNamespace(ctx, name); err != nil {
			return err
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
		if _, err := w.client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating ServiceAccount %s/default: %w", name, err)
		}
	}
	return nil
}

func (w *Writer) putNamespace(ctx context.Context, name string) error {
	const patience = 2 * time.Minute // with a namespace that an earlier run left terminating
	namespaces := w.client.CoreV1().Namespaces()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{FleetLabel: w.fleet.options.Name},
	}}
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (bool, error) {
		_, err := namespaces.Create(ctx, wanted, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err == nil, err
		}
		current, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil // gone in between
		}
		if err != nil {
			return false, err
		}
		return current.DeletionTimestamp == nil, w.own(current)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("creating namespace %s: it is still terminating after %v (is an APIService unavailable? that blocks the deletion of namespaces): %w", name, patience, err)
	}
	if err != nil {
		return fmt.Errorf("creating namespace %s: %w", name, err)
	}
	return nil
}

func (w *Writer) syncNodes(ctx context.Context) error {
	existing, err := w.listNodes(ctx)
	if err != nil {
		return err
	}
	group, ctx := w.group(ctx)
	for name := range existing {
		if w.fleet.Node(name) == nil {
			group.Go(func() error { return w.deleteNode(ctx, name) })
		}
	}
	for _, n := range w.fleet.Nodes() {
		group.Go(func() error { return count(&w.nodes, w.putNode(ctx, w.fleet.NodeObject(n), existing[n.Name])) })
	}
	return group.Wait()
}

// putNode creates the Node. One with another endpoint is of an earlier run, whose
// certificate is no longer valid either: it is replaced, not changed, since a
// client that pins certificates goes by the Node's UID.
func (w *Writer) putNode(ctx context.Context, wanted, existing *corev1.Node) error {
	if existing != nil {
		if existing.DeletionTimestamp == nil &&
			existing.Annotations[pathAnnotation] == wanted.Annotations[pathAnnotation] &&
			existing.Status.DaemonEndpoints == wanted.Status.DaemonEndpoints &&
			equality.Semantic.DeepEqual(existing.Status.Addresses, wanted.Status.Addresses) {
			return nil
		}
		if err := w.deleteNode(ctx, wanted.Name); err != nil {
			return err
		}
	}
	// Unlike a pod's, a node's status is taken from the create.
	_, err := w.client.CoreV1().Nodes().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if current, getErr := w.client.CoreV1().Nodes().Get(ctx, wanted.Name, metav1.GetOptions{}); getErr == nil {
			if err := w.own(current); err != nil {
				return fmt.Errorf("creating node: %w", err)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("creating node %s: %w", wanted.Name, err)
	}
	return nil
}

func (w *Writer) deleteNode(ctx context.Context, name string) error {
	err := w.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

func (w *Writer) listNodes(ctx context.Context) (map[string]*corev1.Node, error) {
	nodes := map[string]*corev1.Node{}
	list := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return w.client.CoreV1().Nodes().List(ctx, o)
	}))
	err := list.EachListItem(ctx, metav1.ListOptions{LabelSelector: w.fleet.Selector()}, func(o runtime.Object) error {
		nodes[o.(*corev1.Node).Name] = o.(*corev1.Node)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the fleet's nodes: %w", err)
	}
	return nodes, nil
}
