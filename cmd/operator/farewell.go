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

// farewellTimeout bounds the last work of a process that was told to end.
const farewellTimeout = 15 * time.Second

// farewell retires every version when the operator ends because its namespace is
// being deleted, and serving pods with it: APIServices that outlive their pods
// block the deletion of every namespace, of this one first of all.
type farewell struct {
	live      client.Reader
	namespace string
	retireAll func(context.Context) error
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the operator
// that works has something to take back.
func (f *farewell) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It waits for the end.
func (f *farewell) Start(ctx context.Context) error {
	<-ctx.Done()
	logger := klog.FromContext(ctx)
	// The process's own context has ended; this work has a deadline of its own.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
	defer cancel()
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := f.live.Get(last, client.ObjectKey{Name: f.namespace}, namespace); err != nil {
		logger.Error(err, "Cannot tell whether the operator's namespace is being deleted; APIServices stay registered", "namespace", f.namespace)
		return nil
	}
	if namespace.DeletionTimestamp == nil {
		return nil
	}
	logger.Info("The operator's namespace is being deleted: removing all APIServices", "namespace", f.namespace)
	if err := f.retireAll(last); err != nil {
		logger.Error(err, "Cannot remove all APIServices; remove those with label "+v1alpha1.LabelBackend+" by hand")
	}
	return nil
}
