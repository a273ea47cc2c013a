// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package declaredmetric

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingclient"
)

// world is an API server without a process, and serving pods that say what a test
// has them say.
type world struct {
	t         *testing.T
	client    client.WithWatch
	clock     *testingclock.FakeClock
	directory *servingclient.Directory
	// reports by pod; one with an error fails.
	reports map[string]*v1alpha1.DeclaredReport
	errs    map[string]error
	// forgotten counts the tokens that were dropped.
	forgotten int
	// writes counts status writes, and failWrites makes them fail.
	writes     int
	failWrites error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	kinds := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(kinds); err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, clock: testingclock.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)),
		directory: servingclient.NewDirectory(), reports: map[string]*v1alpha1.DeclaredReport{},
		errs: map[string]error{},
	}
	base := fake.NewClientBuilder().WithScheme(kinds).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.CustomMetric{}, &v1alpha1.ExternalMetric{}).Build()
	w.client = interceptor.NewClient(base, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			w.writes++
			if w.failWrites != nil {
				return w.failWrites
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	return w
}

func (w *world) controller() *Controller {
	return New(Options{Client: w.client, Live: w.client, Pods: w, Tokens: w, Directory: w.directory, Clock: w.clock})
}

// Declared implements PodReader; the address is the pod's name. Each is asked by one
// request at a time, and by another goroutine each.
func (w *world) Declared(_ context.Context, pod servingclient.Pod, visit func(v1alpha1.DeclaredHealth)) error {
	if pod.Token == "" {
		return fmt.Errorf("pod %s is asked without a token", pod.Address)
	}
	report := w.reports[pod.Address]
	if report != nil {
		for _, h := range report.Metrics {
			visit(h)
		}
	}
	return w.errs[pod.Address]
}

// countingAsker notes each request.
type countingAsker struct {
	*world
	asked chan string
}

// Declared implements PodReader.
func (c *countingAsker) Declared(ctx context.Context, pod servingclient.Pod, visit func(v1alpha1.DeclaredHealth)) error {
	c.asked <- pod.Address
	return c.world.Declared(ctx, pod, visit)
}

// Token implements Tokens.
func (w *world) Token(_ context.Context, account client.ObjectKey) (string, error) {
	return "token of " + account.String(), nil
}

// Forget implements Tokens.
func (w *world) Forget(client.ObjectKey) { w.forgotten++ }

// pods makes these the ready pods of the backend.
func (w *world) pods(names ...string) {
	var entries []servingclient.Entry
	for _, name := range names {
		entries = append(entries, servingclient.Entry{Name: name, Pod: servingclient.Pod{Address: name}, Account: client.ObjectKey{Namespace: "ns", Name: "prober"}})
	}
	w.directory.Set("cluster", entries)
}

// say has pods report the same.
func (w *world) say(health ...v1alpha1.DeclaredHealth) {
	entries, _ := w.directory.Pods("cluster")
	for _, e := range entries {
		w.reports[e.Name] = &v1alpha1.DeclaredReport{Metrics: health}
	}
}

func (w *world) poll(c *Controller) {
	w.t.Helper()
	w.sync(c)
	if err := c.Poll(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// sync gives a controller all metrics, as its watches do.
func (w *world) sync(c *Controller) {
	w.t.Helper()
	for kind, list := range map[string]client.ObjectList{kindCustom: &v1alpha1.CustomMetricList{}, kindExternal: &v1alpha1.ExternalMetricList{}} {
		if err := w.client.List(w.t.Context(), list); err != nil {
			w.t.Fatal(err)
		}
		var objects []any
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			m, err := transform(o)
			objects = append(objects, m)
			return err
		}); err != nil {
			w.t.Fatalf("%s: %v", kind, err)
		}
		if err := c.informers[kind].GetStore().Replace(objects, ""); err != nil {
			w.t.Fatal(err)
		}
	}
}

// add creates a metric of an age.
func (w *world) add(m *v1alpha1.ExternalMetric, created metav1.Time) {
	w.t.Helper()
	m.CreationTimestamp = created
	if err := w.client.Create(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

// setValue sets the value in the status of an ExternalMetric.
func (w *world) setValue(name, value string) {
	w.t.Helper()
	m := w.external(name)
	m.Status.Value = value
	if err := w.client.Status().Update(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) external(name string) *v1alpha1.ExternalMetric {
	w.t.Helper()
	object := &v1alpha1.ExternalMetric{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, object); err != nil {
		w.t.Fatal(err)
	}
	return object
}

// conditions are those of an ExternalMetric as TYPE=STATUS REASON MESSAGE.
func (w *world) conditions(name string) []string {
	w.t.Helper()
	var all []string
	for _, c := range w.external(name).Status.Conditions {
		all = append(all, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return all
}

func (w *world) ready(name string) metav1.Condition {
	w.t.Helper()
	if c := meta.FindStatusCondition(w.external(name).Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// serving is a MetricsBackend that serves both APIs.
func serving(change ...func(*v1alpha1.MetricsBackend)) *v1alpha1.MetricsBackend {
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	backend.Spec.CustomMetrics, backend.Spec.ExternalMetrics = &v1alpha1.CustomMetricsSpec{}, &v1alpha1.ExternalMetricsSpec{}
	for _, c := range change {
		c(backend)
	}
	return backend
}

func queue(name string) *v1alpha1.ExternalMetric {
	return &v1alpha1.ExternalMetric{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 2}}
}

// health is what a pod says of queue(name).
func health(name string, change ...func(*v1alpha1.DeclaredHealth)) v1alpha1.DeclaredHealth {
	h := v1alpha1.DeclaredHealth{
		Kind: "ExternalMetric", Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Generation: 2,
		Ready: true, Value: "7", Values: 1, Time: metav1.Date(2026, 11, 1, 11, 59, 50, 0, time.UTC),
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

func fails(reason, message string) func(*v1alpha1.DeclaredHealth) {
	return func(h *v1alpha1.DeclaredHealth) {
		h.Ready, h.Value, h.Values, h.Time, h.Reason, h.Message = false, "", 0, metav1.Time{}, reason, message
	}
}
