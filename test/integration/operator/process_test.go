// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// drivenByTest is the MetricsBackend that the suite's operator does not see: a test
// runs, and stops, operators of its own for it.
const drivenByTest = "driven-by-test"

// blindTo reads everything but the MetricsBackend of a name.
type blindTo struct {
	client.Reader
	name string
}

// Get implements client.Reader.
func (b blindTo) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if _, ok := object.(*v1alpha1.MetricsBackend); ok && key.Name == b.name {
		return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "metricsbackends"}, key.Name)
	}
	return b.Reader.Get(ctx, key, object, opts...)
}

var errStopped = errors.New("the operator was stopped")

// process is an operator without a cache, with the operator's rights, that is
// stopped right after a call to the API of the test's choice: it makes no other.
type process struct {
	suite      *controlPlane
	reconciler *metricsbackend.Reconciler
	// after is told of each call that was made, and whether it may have changed
	// anything, and returns whether the process stops.
	after func(call string, changed bool) bool

	mu      sync.Mutex
	stopped string
	cancel  context.CancelFunc
}

func startProcess(t *testing.T, suite *controlPlane, after func(call string, changed bool) bool) *process {
	t.Helper()
	p := &process{suite: suite, after: after}
	p.reconciler = newReconciler(t, suite, p.funcs(), func(*metricsbackend.Options) {})
	return p
}

// newReconciler returns an operator without a cache, with the operator's rights.
func newReconciler(t *testing.T, suite *controlPlane, funcs interceptor.Funcs, change func(*metricsbackend.Options)) *metricsbackend.Reconciler {
	t.Helper()
	kinds, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	config := suite.operator.Config()
	config.QPS = -1
	direct, err := client.NewWithWatch(config, client.Options{Scheme: kinds})
	if err != nil {
		t.Fatal(err)
	}
	intercepted := interceptor.NewClient(direct, funcs)
	config.Dial = dialAdvertised(suite.config.Host)
	aggregated, err := aggregator.NewClient(config, intercepted)
	if err != nil {
		t.Fatal(err)
	}
	options := metricsbackend.Options{
		Client: intercepted, APIReader: intercepted, Events: &events.FakeRecorder{},
		Pods: servingclient.NewClient(suite.pods.dial), Aggregator: aggregated,
		Clock:     clock.RealClock{},
		Namespace: systemNamespace, Namespaces: []string{systemNamespace, otherNamespace},
		ServingImage: imageBoth,
	}
	change(&options)
	return metricsbackend.New(options)
}

// reconcile is one turn. It returns the call after which the process was stopped,
// or nothing while it runs. Errors are what the next turn is for.
func (p *process) reconcile(ctx context.Context) (stopped string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	p.cancel = cancel
	p.mu.Unlock()
	_, err = p.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: drivenByTest}})
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped, err
}

func (p *process) call(name string, changes bool, do func() error) error {
	if p.isStopped() {
		return errStopped
	}
	err := do()
	if p.after(name, changes) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopped = name
		// What it asks of pods and kube-apiservers by other ways ends, too.
		p.cancel()
	}
	return err
}

func (p *process) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped != ""
}

func (p *process) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return p.call(fmt.Sprintf("get %T %s", o, key), false, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return p.call(fmt.Sprintf("list %T", l), false, func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return p.call(fmt.Sprintf("create %T %s", o, o.GetName()), true, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return p.call(fmt.Sprintf("update %T %s", o, o.GetName()), true, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return p.call(fmt.Sprintf("delete %T %s", o, o.GetName()), true, func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return p.call(fmt.Sprintf("patch %T %s", o, o.GetName()), true, func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if p.isStopped() {
				return errStopped
			}
			// A new process applies everything once, most of it in vain.
			before := resourceVersion(ctx, p.suite, o)
			err := c.Apply(ctx, o, opts...)
			changed := err != nil || before != resourceVersion(ctx, p.suite, o)
			return p.call(fmt.Sprintf("apply %T", o), changed, func() error { return err })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
			return p.call("create "+name, true, func() error { return c.SubResource(name).Create(ctx, o, sub, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return p.call("patch "+name, true, func() error { return c.SubResource(name).Patch(ctx, o, patch, opts...) })
		},
	}
}

// resourceVersion is that of the object of an apply, empty when there is none.
func resourceVersion(ctx context.Context, suite *controlPlane, o runtime.ApplyConfiguration) string {
	applied, ok := o.(interface {
		GetAPIVersion() *string
		GetKind() *string
		GetName() *string
		GetNamespace() *string
	})
	if !ok {
		return ""
	}
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: ptr.Deref(applied.GetAPIVersion(), ""), Kind: ptr.Deref(applied.GetKind(), "")}}
	key := client.ObjectKey{Namespace: ptr.Deref(applied.GetNamespace(), ""), Name: ptr.Deref(applied.GetName(), "")}
	if err := suite.admin.Get(ctx, key, object); err != nil {
		return ""
	}
	return object.ResourceVersion
}
