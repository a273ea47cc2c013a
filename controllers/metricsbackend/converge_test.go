// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
)

// scenario is a change and the state in which it must end despite faults.
type scenario struct {
	// prepare brings the cluster to the state before the change.
	prepare func(*fakeCluster)
	change  func(*fakeCluster)
	done    func(*fakeCluster) bool
	// registered are the versions at the end.
	registered []string
}

func scenarios() map[string]scenario {
	versions := func(names ...v1alpha1.ResourceMetricsVersion) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Versions = names })
		}
	}
	image := func(name string) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = name })
		}
	}
	return map[string]scenario{
		"created": {
			prepare: func(*fakeCluster) {}, change: func(*fakeCluster) {}, done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"version taken out of the spec": {
			prepare: becomeReady, change: versions("v1beta1"), done: (*fakeCluster).isReady,
			registered: []string{"v1beta1"},
		},
		"version added to the spec": {
			prepare: func(fc *fakeCluster) { versions("v1beta1")(fc); becomeReady(fc) }, change: versions("v1", "v1beta1"), done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"image upgraded": {
			prepare: func(fc *fakeCluster) {
				fc.terminationSteps = 2
				image(imageV1beta1)(fc)
				versions("v1beta1")(fc)
				becomeReady(fc)
			},
			change: func(fc *fakeCluster) { image(imageBoth)(fc); versions("v1", "v1beta1")(fc) }, done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"image rolled back to one without v1": {
			prepare: becomeReady, change: image(imageV1beta1),
			done: func(fc *fakeCluster) bool {
				return fc.condition(v1alpha1.ConditionReady).Reason == v1alpha1.ReasonVersionNotServed
			},
			registered: []string{"v1beta1"},
		},
		"taken over from metrics-server": {
			prepare: stockCluster, change: func(fc *fakeCluster) { fc.change(adopting(v1alpha1.AdoptionAlways)) }, done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"restored to metrics-server": {
			prepare: adoptedCluster,
			change:  func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:    func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"from serving to existing": {
			prepare: besideOther, change: moveToExisting,
			done:       func(fc *fakeCluster) bool { return fc.isReady() && !fc.deployed() && len(fc.pods()) == 0 },
			registered: []string{"v1beta1"},
		},
		"from existing to serving": {
			prepare: existingCluster, change: moveToServing, done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"authority rotated": {
			prepare: becomeReady, change: rotate("now"), done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"certificate from a Secret": {
			prepare: becomeReady, change: func(fc *fakeCluster) { fc.provide("mine"); useSecret("mine")(fc) }, done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"certificate from a Secret no more": {
			prepare: func(fc *fakeCluster) { fc.provide("mine"); useSecret("mine")(fc); becomeReady(fc) },
			change:  managed, done: (*fakeCluster).isReady,
			registered: []string{"v1", "v1beta1"},
		},
		"deleted": {
			prepare: becomeReady,
			change:  func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:    (*fakeCluster).isGone,
		},
		"deleted before it was ready": {
			prepare: func(fc *fakeCluster) {
				r := fc.reconciler()
				fc.reconcileRounds(r, 4)
			},
			change: func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:   (*fakeCluster).isGone,
		},
	}
}

// cluster returns the cluster before the scenario of that name.
func (s scenario) cluster(t *testing.T, name string) *fakeCluster {
	t.Helper()
	fc := prepared(t, name, s.prepare)
	s.change(fc)
	return fc
}

func (fc *fakeCluster) isGone() bool {
	return apierrors.IsNotFound(fc.raw.Get(context.Background(), client.ObjectKey{Name: backendName}, &v1alpha1.MetricsBackend{}))
}

const patchStatus = "patch status"

type call struct {
	name  string
	write bool
}

// intercepted passes each call to do, which makes it or not.
func intercepted(do func(c call, make func() error) error) interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return do(call{name: fmt.Sprintf("get %T %s", o, key)}, func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return do(call{name: fmt.Sprintf("list %T %s", l, l.GetObjectKind().GroupVersionKind().Kind)}, func() error { return c.List(ctx, l, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return do(call{fmt.Sprintf("apply %T", o), true}, func() error { return c.Apply(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return do(call{fmt.Sprintf("update %T %s", o, o.GetName()), true}, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return do(call{fmt.Sprintf("delete %T %s", o, o.GetName()), true}, func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return do(call{fmt.Sprintf("patch %T", o), true}, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
			return do(call{"create " + name, true}, func() error { return c.SubResource(name).Create(ctx, o, sub, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return do(call{patchStatus, true}, func() error { return c.SubResource(name).Patch(ctx, o, p, opts...) })
		},
	}
}

// cleanRuns holds the end of each scenario without faults, by name.
var cleanRuns sync.Map

type cleanRun struct {
	once sync.Once
	end  string
}

// clean runs a scenario without faults and returns its end.
func clean(t *testing.T, name string, s scenario) string {
	t.Helper()
	known, _ := cleanRuns.LoadOrStore(name, &cleanRun{})
	run := known.(*cleanRun)
	run.once.Do(func() { run.end = runClean(t, name, s) })
	if run.end == "" {
		t.Fatal("the scenario does not end even without faults")
	}
	return run.end
}

func runClean(t *testing.T, name string, s scenario) string {
	t.Helper()
	fc := s.cluster(t, name)
	fc.reconcileUntil(fc.reconciler(), func() bool { return s.done(fc) })
	if got := fc.registeredVersions(); !slices.Equal(got, s.registered) {
		t.Fatalf("registered %v, want %v", got, s.registered)
	}
	return fc.inventory()
}

var faults = []error{
	apierrors.NewInternalError(errors.New("etcdserver: request timed out")),
	apierrors.NewConflict(corev1.Resource("anything"), "x", errors.New("changed")),
	apierrors.NewTimeoutError("the request timed out", 1),
}

// Every call fails the first time that it is made in each state of the cluster. The end
// is the same, and the invariant holds throughout.
func TestEachCallFailsOnce(t *testing.T) {
	t.Parallel()
	type point struct {
		writes int
		name   string
	}
	for name, s := range sampled(t, scenarios()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := clean(t, name, s)
			failed := map[point]bool{}
			written := map[string]bool{}
			fail := intercepted(func(c call, make func() error) error {
				if p := (point{len(written), c.name}); !failed[p] {
					failed[p] = true
					return faults[len(failed)%len(faults)]
				}
				// Repeated writes, such as that of the status, make no new state.
				if c.write && c.name != patchStatus {
					written[c.name] = true
				}
				return make()
			})
			fc := s.cluster(t, name)
			fc.reconcileUntil(fc.reconciler(fail), func() bool { return s.done(fc) })
			if diff := cmp.Diff(want, fc.inventory()); diff != "" {
				t.Errorf("after %d failures (-clean +faulty):\n%s", len(failed), diff)
			}
		})
	}
}

// The first process ends right after its first write, the second after its second, and so
// on, so that a new process starts from each state between two writes. (A read leaves the
// cluster as the write before it did, and a new process first repeats applies that change
// nothing.)
func TestKilledAfterEachWrite(t *testing.T) {
	t.Parallel()
	errKilled := errors.New("the process was killed")
	for name, s := range sampled(t, scenarios()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := clean(t, name, s)
			fc := s.cluster(t, name)
			for process := 1; !s.done(fc); process++ {
				writes := 0
				killed := func() bool { return writes >= process }
				mortal := intercepted(func(c call, make func() error) error {
					if killed() {
						return errKilled
					}
					if c.write {
						writes++
					}
					return make()
				})
				fc.reconcileUntil(fc.reconciler(mortal), func() bool { return killed() || s.done(fc) })
			}
			if diff := cmp.Diff(want, fc.inventory()); diff != "" {
				t.Errorf("(-clean +killed):\n%s", diff)
			}
		})
	}
}

func (fc *fakeCluster) registeredVersions() []string {
	var versions []string
	for _, service := range fc.apiServices() {
		versions = append(versions, service.Spec.Version)
	}
	slices.Sort(versions)
	return versions
}

// inventory lists all objects of the backend, and its status.
func (fc *fakeCluster) inventory() string {
	out := fc.show()
	for _, kind := range inventory.Removable() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		fc.list(list, client.HasLabels{v1alpha1.LabelBackend})
		for _, object := range list.Items {
			out += fmt.Sprintf("%s %s/%s\n", kind.Kind, object.Namespace, object.Name)
		}
	}
	for _, service := range fc.apiServices() {
		out += fmt.Sprintf("APIService %s -> %s/%s\n", service.Name, service.Spec.Service.Namespace, service.Spec.Service.Name)
	}
	return out
}
