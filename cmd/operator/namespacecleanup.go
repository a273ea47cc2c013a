// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// cleanupTimeout limits the work after SIGTERM.
const cleanupTimeout = 15 * time.Second

// namespaceCleanup removes all APIServices if the operator stops because its namespace is
// being deleted together with the serving pods: APIServices without pods block the
// deletion of every namespace, including this one.
type namespaceCleanup struct {
	apiReader client.Reader
	namespace string
	retireAll func(context.Context) error
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader has
// registered APIServices.
func (c *namespaceCleanup) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It waits until ctx ends, and then cleans up.
func (c *namespaceCleanup) Start(ctx context.Context) error {
	<-ctx.Done()
	logger := klog.FromContext(ctx)
	// ctx has ended: the cleanup has its own deadline.
	cleanupCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.apiReader.Get(cleanupCtx, client.ObjectKey{Name: c.namespace}, namespace); err != nil {
		logger.Error(err, "Cannot tell whether the operator's namespace is being deleted; APIServices stay registered", "namespace", c.namespace)
		return nil
	}
	if namespace.DeletionTimestamp == nil {
		return nil
	}
	logger.Info("The operator's namespace is being deleted: removing all APIServices", "namespace", c.namespace)
	if err := c.retireAll(cleanupCtx); err != nil {
		logger.Error(err, "Cannot remove all APIServices; remove those with label "+v1alpha1.LabelBackend+" or "+v1alpha1.LabelCanary+" by hand")
	}
	return nil
}
