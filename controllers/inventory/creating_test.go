// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// Two backends see at the same moment that there is no APIService of a name: one
// gets it, and the other is told who has it.
func TestOneOfTwoCreates(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	var looks atomic.Int32
	c := interceptor.NewClient(newCluster(t).WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := inner.Get(ctx, key, o, opts...)
			// The look around the cache, the last before an apply.
			if _, ok := o.(*metav1.PartialObjectMetadata); ok && looks.Add(1) <= 2 {
				both.Done()
				both.Wait()
			}
			return err
		},
	})
	a := NewApplier(c, c, clock.RealClock{})
	gv := schema.GroupVersion{Group: manifests.ResourceMetricsGroup, Version: "v1"}
	failures := make(chan error, 2)
	for _, backend := range []string{"a", "b"} {
		go func() {
			s := serving()
			s.Backend = backend
			_, err := a.Apply(t.Context(), backend, manifests.APIService(s, gv, s.Target([]byte("CA"))))
			failures <- err
		}()
	}
	first, second := <-failures, <-failures
	var notOwned *NotOwnedError
	if first == nil {
		first, second = second, first
	}
	if second != nil || !errors.As(first, &notOwned) {
		t.Errorf("got %v and %v, want one of them to be told of the other", first, second)
	}
}
