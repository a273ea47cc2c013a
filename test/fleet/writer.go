// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

// Writer keeps the fleet's objects in an API server. It touches only objects
// that carry the fleet's label, and fails where another one has their name.
type Writer struct {
	client      kubernetes.Interface
	fleet       *Fleet
	concurrency int

	nodes, pods atomic.Int64
}

// NewWriter with at most that many requests in flight, default 32.
func NewWriter(client kubernetes.Interface, fleet *Fleet, concurrency int) *Writer {
	setDefault(&concurrency, 32)
	return &Writer{client: client, fleet: fleet, concurrency: concurrency}
}

// Progress is how many nodes and pods the last Sync settled (wrote, or found as
// they should be), or the last Cleanup deleted.
func (w *Writer) Progress() (nodes, pods int64) { return w.nodes.Load(), w.pods.Load() }

// Sync makes the API server's objects those of the started fleet: it creates what
// is missing, repairs what differs, and deletes what an earlier run left. It may
// be called again at any time; after an error it goes on where it stopped.
func (w *Writer) Sync(ctx context.Context) error {
	w.begin()
	if err := w.syncNamespaces(ctx); err != nil {
		return err
	}
	if err := w.syncNodes(ctx); err != nil {
		return err
	}
	return w.syncPods(ctx)
}

// Apply brings the pods that changed up to date. It looks at what they are now,
// so changes may be applied late, twice or in another order.
func (w *Writer) Apply(ctx context.Context, changes []Change) error {
	keys := map[types.NamespacedName]bool{}
	for _, c := range changes {
		keys[c.Pod.Key()] = true
	}
	group, ctx := w.group(ctx)
	for key := range keys {
		group.Go(func() error {
			if pod, node := w.fleet.Pod(key); pod != nil {
				return w.putPod(ctx, pod, node)
			}
			return w.deletePod(ctx, key, nil)
		})
	}
	return group.Wait()
}

// Cleanup deletes the fleet's pods, nodes and namespaces. The namespace
// controller takes the namespaces' remains away in its own time.
func (w *Writer) Cleanup(ctx context.Context) error {
	w.begin()
	pods, err := w.listPods(ctx)
	if err != nil {
		return err
	}
	group, limited := w.group(ctx)
	for key := range pods {
		group.Go(func() error { return count(&w.pods, w.deletePod(limited, key, nil)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	nodes, err := w.listNodes(ctx)
	if err != nil {
		return err
	}
	group, limited = w.group(ctx)
	for name := range nodes {
		group.Go(func() error { return count(&w.nodes, w.deleteNode(limited, name)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	namespaces, err := w.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: w.fleet.Selector()})
	if err != nil {
		return fmt.Errorf("listing the fleet's namespaces: %w", err)
	}
	for _, namespace := range namespaces.Items {
		if err := w.client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting namespace %s: %w", namespace.Name, err)
		}
	}
	return nil
}

// Selector matches the objects that the writer keeps.
func (w *Writer) Selector() string { return w.fleet.Selector() }

func (w *Writer) begin() {
	w.nodes.Store(0)
	w.pods.Store(0)
}

// count what succeeded.
func count(settled *atomic.Int64, err error) error {
	if err == nil {
		settled.Add(1)
	}
	return err
}

func (w *Writer) group(ctx context.Context) (*errgroup.Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(w.concurrency)
	return group, ctx
}

// own is an error unless the object found under the fleet's name is the fleet's.
func (w *Writer) own(found metav1.Object) error {
	if found.GetLabels()[FleetLabel] != w.fleet.options.Name {
		return fmt.Errorf("%s exists without the label %s: delete it, or give the fleet another name", found.GetName(), w.fleet.Selector())
	}
	return nil
}
