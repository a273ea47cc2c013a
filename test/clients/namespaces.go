// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	// NamespaceSlack is how much longer than without the operator a namespace should take to go at most. The controller that deletes it stops at an API that does not answer
	// (kubernetes/kubernetes#83332) and tries again after five seconds and more; one
	// such try may meet an APIService that was made a moment ago, whose discovery
	// kube-apiserver has not read yet. An API that stays away costs minutes.
	NamespaceSlack = 15 * time.Second
	// namespaceLimit is when the clients stop waiting.
	namespaceLimit  = 2 * time.Minute
	namespacePeriod = 100 * time.Millisecond
)

// NamespaceDeletion returns the median time that n namespaces take to go, one after
// the other.
func NamespaceDeletion(ctx context.Context, core kubernetes.Interface, n int) (time.Duration, error) {
	var all []time.Duration
	for range n {
		took, err := deleteNamespace(ctx, core)
		if err != nil {
			return 0, err
		}
		all = append(all, took)
	}
	return median(all), nil
}

// deleteNamespace makes a namespace that holds something, deletes it and returns how long it took to go. The error says
// what its conditions last were.
func deleteNamespace(ctx context.Context, core kubernetes.Interface) (time.Duration, error) {
	made, err := core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "clients-"}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create a namespace: %w", err)
	}
	content := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "content"}}
	if _, err := core.CoreV1().ConfigMaps(made.Name).Create(ctx, content, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("fill namespace %s: %w", made.Name, err)
	}
	state, began := "", time.Now()
	if err := core.CoreV1().Namespaces().Delete(ctx, made.Name, metav1.DeleteOptions{}); err != nil {
		return 0, fmt.Errorf("delete namespace %s: %w", made.Name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, namespacePeriod, namespaceLimit, true, func(ctx context.Context) (bool, error) {
		namespace, err := core.CoreV1().Namespaces().Get(ctx, made.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err == nil && len(namespace.Status.Conditions) > 0 {
			state = fmt.Sprintf("%+v", namespace.Status.Conditions)
		}
		return false, nil
	})
	if err != nil {
		return 0, fmt.Errorf("namespace %s is not gone after %s: %w: %s", made.Name, time.Since(began).Round(time.Second), err, state)
	}
	return time.Since(began), nil
}

// cycleNamespaces makes and deletes one namespace after the other.
func (c *Clients) cycleNamespaces(ctx context.Context) {
	for ctx.Err() == nil {
		// Not with ctx: the last one is waited for too.
		took, err := deleteNamespace(context.WithoutCancel(ctx), c.core)
		c.mu.Lock()
		if err != nil {
			c.result.fail("%s: %v", clock(time.Now()), err)
		} else {
			c.result.Namespaces = append(c.result.Namespaces, took)
		}
		c.mu.Unlock()
	}
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
