// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"k8s.io/utils/ptr"
)

// A backend with slow pods does not delay others.
func TestSlowBackendDelaysNoOther(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	others := make(chan struct{})
	slow := make(chan bool, 1)
	options := controllerOptions()
	options.SkipNameValidation = ptr.To(true)
	options.Reconciler = reconcile.Func(func(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
		if request.Name == "other" {
			close(others)
			return ctrl.Result{}, nil
		}
		select {
		case <-others:
			slow <- true
		case <-ctx.Done():
			slow <- false
		}
		return ctrl.Result{}, nil
	})
	c, err := controller.NewTypedUnmanaged("slow", options)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for _, name := range []string{"slow", "other"} {
			queue.Add(requestsFor(name)[0])
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	if !<-slow {
		t.Error("the other backend was not looked at meanwhile")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
