// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
)

// found is what matters of a pod in the API server.
type found struct {
	node     string
	restarts int32
	running  bool
}

func (w *Writer) syncPods(ctx context.Context) error {
	existing, err := w.listPods(ctx)
	if err != nil {
		return err
	}
	group, ctx := w.group(ctx)
	for key := range existing {
		if pod, _ := w.fleet.Pod(key); pod == nil {
			group.Go(func() error { return w.deletePod(ctx, key, nil) })
		}
	}
	for _, n := range w.fleet.Nodes() {
		for _, pod := range n.Pods() {
			group.Go(func() error {
				var err error
				if existing[pod.Key()] != summarized(w.fleet.PodObject(pod, n)) {
					err = w.putPod(ctx, pod, n)
				}
				return count(&w.pods, err)
			})
		}
	}
	return group.Wait()
}

func (w *Writer) listPods(ctx context.Context) (map[types.NamespacedName]found, error) {
	pods := map[types.NamespacedName]found{}
	list := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return w.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	}))
	err := list.EachListItem(ctx, metav1.ListOptions{LabelSelector: w.fleet.Selector()}, func(o runtime.Object) error {
		pod := o.(*corev1.Pod)
		pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] = summarized(pod)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the fleet's pods: %w", err)
	}
	return pods, nil
}

func summarized(pod *corev1.Pod) found {
	f := found{node: pod.Spec.NodeName, running: pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil}
	for _, status := range pod.Status.ContainerStatuses {
		f.restarts += status.RestartCount
	}
	return f
}

// putPod creates the Pod and then writes its status, which a create drops. A pod
// that stands on another node is deleted first: a binding cannot change.
func (w *Writer) putPod(ctx context.Context, p *Pod, n *Node) error {
	pods := w.client.CoreV1().Pods(p.Namespace)
	wanted := w.fleet.PodObject(p, n)
	pod, err := pods.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if pod, err = pods.Get(ctx, p.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("reading pod %s: %w", p.Key(), err)
		}
		if err = w.own(pod); err != nil {
			return fmt.Errorf("creating pod %s: %w", p.Key(), err)
		}
		if pod.Spec.NodeName != n.Name || pod.DeletionTimestamp != nil {
			if err = w.deletePod(ctx, p.Key(), &pod.UID); err != nil {
				return err
			}
			pod, err = pods.Create(ctx, wanted, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("creating pod %s: %w", p.Key(), err)
	}
	pod.Status = wanted.Status
	pod.ResourceVersion = "" // nobody else has a say in a fake pod's status
	if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", p.Key(), err)
	}
	return nil
}

// deletePod at once: no kubelet is there to confirm a graceful deletion.
func (w *Writer) deletePod(ctx context.Context, key types.NamespacedName, uid *types.UID) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if uid != nil {
		options.Preconditions = &metav1.Preconditions{UID: uid}
	}
	err := w.client.CoreV1().Pods(key.Namespace).Delete(ctx, key.Name, options)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s: %w", key, err)
	}
	return nil
}
