// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
)

// lifecycleCase is a change between two states of a backend.
type lifecycleCase struct {
	// before is the default serving image at the start, and after from then on. They
	// differ when the operator itself is upgraded or downgraded.
	before, after string
	prepare       func(*fakeCluster)
	change        func(*fakeCluster)
	done          func(*fakeCluster) bool
	// back reports that an older operator that returns in the middle is done.
	back func(*fakeCluster) bool
}

func lifecycleCases() map[string]lifecycleCase {
	spec := func(image string, versions ...v1alpha1.ResourceMetricsVersion) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
				spec.Serving.Image = image
				spec.ResourceMetrics.Versions = versions
			})
		}
	}
	const both, older = imageBoth, imageV1beta1
	groups := func(image string) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
				spec.Serving.Image = image
				withAllGroups(spec)
			})
		}
	}
	ready, lacksV1 := (*fakeCluster).isReady, (*fakeCluster).reportsNotServed
	return map[string]lifecycleCase{
		"upgrade: a newer image and its version": {
			prepare: spec(older, "v1beta1"), change: spec(both, "v1", "v1beta1"), done: ready,
		},
		// The older image has no readiness gate of ours: only the order protects its
		// clients.
		"rollback: an older image and its version": {
			prepare: spec(both, "v1", "v1beta1"),
			change:  func(fc *fakeCluster) { fc.withoutGate = true; spec(older, "v1beta1")(fc) }, done: ready,
		},
		"a version is added to the spec":     {prepare: spec(both, "v1beta1"), change: spec(both, "v1", "v1beta1"), done: ready},
		"a version is taken out of the spec": {prepare: spec(both, "v1", "v1beta1"), change: spec(both, "v1beta1"), done: ready},
		"image rollback: it serves less":     {prepare: spec(both, "v1", "v1beta1"), change: spec(older, "v1", "v1beta1"), done: lacksV1},
		"image upgrade: it serves more":      {prepare: spec(older, "v1", "v1beta1"), change: spec(both, "v1", "v1beta1"), done: ready},
		"the operator is upgraded":           {before: older, after: both, done: ready, back: lacksV1},
		"the operator is downgraded":         {before: both, after: older, done: lacksV1, back: ready},
		"the operator is downgraded, and knows less": {
			before: imageFuture, after: both, prepare: registeredByALaterOperator,
			done: func(fc *fakeCluster) bool { return fc.isReady() && fc.deployedImage() == both && !fc.isRegistered(v2) },
		},
		"groups are added, with the image that serves them": {
			prepare: spec(older, "v1beta1"), change: groups(both),
			done: func(fc *fakeCluster) bool { return fc.isReady() && len(fc.registeredVersions()) == 5 },
		},
		// The older image serves neither group: only the order protects its clients.
		"groups are taken out, with the image that serves them": {
			prepare: groups(both),
			change: func(fc *fakeCluster) {
				fc.withoutGate = true
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
					spec.CustomMetrics, spec.ExternalMetrics, spec.Sources = nil, nil, nil
					spec.ResourceMetrics.Versions, spec.Serving.Image = []v1alpha1.ResourceMetricsVersion{"v1beta1"}, older
				})
			},
			done: func(fc *fakeCluster) bool { return fc.isReady() && fc.deployedImage() == older },
		},
		"deletion of all groups": {
			prepare: groups(both),
			change:  func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:    (*fakeCluster).isGone,
		},
		"deletion": {
			prepare: spec(both, "v1", "v1beta1"),
			change:  func(fc *fakeCluster) { fc.delete(fc.backend()) },
			done:    (*fakeCluster).isGone,
		},
	}
}

func withAllGroups(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	spec.CustomMetrics, spec.ExternalMetrics = &v1alpha1.CustomMetricsSpec{}, &v1alpha1.ExternalMetricsSpec{}
	spec.Sources = []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.monitoring.svc:9090"}}}
}

// reportsNotServed reports whether the backend is stable with an image that lacks v1.
func (fc *fakeCluster) reportsNotServed() bool {
	return fc.condition(v1alpha1.ConditionReady).Reason == v1alpha1.ReasonVersionNotServed && !fc.isRegistered(v1) && fc.deployedImage() == imageV1beta1
}

// deployedImage returns the image of all pods, or "" while they differ.
func (fc *fakeCluster) deployedImage() string {
	image := ""
	for _, p := range fc.pods() {
		if image = cmp.Or(image, imageOf(&p)); image != imageOf(&p) {
			return ""
		}
	}
	return image
}

// registeredByALaterOperator registers v2, as a newer operator did.
func registeredByALaterOperator(fc *fakeCluster) {
	becomeReadyWith(fc, imageFuture)
	var service apiregistrationv1.APIService
	fc.get(client.ObjectKey{Name: apiServiceName(v1)}, &service)
	later := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(v2), Labels: service.Labels},
		Spec:       service.Spec,
	}
	later.Spec.Version = v2.Version
	fc.create(later)
	backend := fc.backend()
	backend.Status.APIServices = append(backend.Status.APIServices, v1alpha1.APIServiceStatus{Name: later.Name, State: v1alpha1.APIServiceAvailable})
	fc.updateStatus(backend)
	fc.step()
}

func becomeReadyWith(fc *fakeCluster, image string) {
	fc.reconcileUntil(fc.operator(image), func() bool { return fc.isReady() || fc.reportsNotServed() })
}

// operator returns a reconciler of a release with that default image.
func (fc *fakeCluster) operator(image string, funcs ...interceptor.Funcs) *Reconciler {
	r := fc.reconciler(funcs...)
	r.ServingImage = cmp.Or(image, imageBoth)
	return r
}

// cluster returns the cluster before the case of that name. Pods take long to terminate,
// and discovery to follow.
func (j lifecycleCase) cluster(t *testing.T, name string) *fakeCluster {
	t.Helper()
	fc := prepared(t, "journey "+name, func(fc *fakeCluster) {
		fc.terminationSteps, fc.discoveryDelay = 1, 1
		if j.prepare != nil {
			j.prepare(fc)
		}
		becomeReadyWith(fc, j.before)
	})
	if j.change != nil {
		j.change(fc)
	}
	return fc
}

// watched checks the invariant after each call that changed anything, and then passes
// every call to then.
func (fc *fakeCluster) watched(then func(c call, changed bool)) interceptor.Funcs {
	return intercepted(func(c call, make func() error) error {
		before := fc.memo.written
		err := make()
		changed := fc.memo.written != before
		if changed {
			fc.checkInvariant("after " + c.name)
		}
		if then != nil {
			then(c, changed)
		}
		return err
	})
}

// stop is a state of the cluster in which the operator ended.
type stop struct {
	after string
	state *snapshot
}

// stops runs the case and returns each state that a process leaves which ends right after
// one of its calls, the number of calls, and the state at the end. A call that changes
// nothing leaves the state of the call before it, and a new process remembers nothing, so
// that state is tested once.
func (j lifecycleCase) stops(t *testing.T, name string) (stops []stop, calls int, end string) {
	t.Helper()
	fc := j.cluster(t, name)
	r := fc.operator(j.after, fc.watched(func(c call, changed bool) {
		if calls++; changed || calls == 1 {
			s := &snapshot{}
			s.take(fc)
			stops = append(stops, stop{fmt.Sprintf("call %d (%s)", calls, c.name), s})
		}
	}))
	fc.reconcileUntil(r, func() bool { return j.done(fc) })
	return stops, calls, fc.endState()
}

// The operator stops after each of its calls, and a new process goes on: at once, or
// after the cluster alone went on for a while, or after the previous release of the
// operator ran. After each call and each step of the cluster, no version is in discovery
// that a ready pod does not serve; and the end is the same as without the stop, without
// orphans.
func TestStoppedAfterEachCall(t *testing.T) {
	t.Parallel()
	const away = 4
	for name, j := range sampled(t, lifecycleCases()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stops, calls, want := j.stops(t, name)
			if len(stops) < 4 {
				t.Fatalf("only %d states: this is no journey", len(stops))
			}
			resume := func(s stop, how string, between func(*fakeCluster)) {
				fc := s.state.restore(t)
				between(fc)
				fc.reconcileUntil(fc.operator(j.after, fc.watched(nil)), func() bool { return j.done(fc) })
				if diff := gocmp.Diff(want, fc.endState()); diff != "" {
					t.Errorf("(-without a stop +with it):\n%s", diff)
				}
				if t.Failed() {
					t.Fatalf("stopped after %s, resumed %s", s.after, how)
				}
			}
			for i, s := range sampledStops(stops) {
				resume(s, "at once", func(*fakeCluster) {})
				if i%2 == 1 {
					resume(s, "later", func(fc *fakeCluster) {
						for range away {
							fc.step()
						}
					})
				}
				if i%2 == 0 && j.back != nil {
					resume(s, "after the release before", func(fc *fakeCluster) {
						r := fc.operator(j.before, fc.watched(nil))
						_, _ = reconcileOnce(t, r)
						fc.reconcileUntil(r, func() bool { return j.back(fc) })
					})
				}
			}
			t.Logf("%d calls, which leave %d states", calls, len(stops))
		})
	}
}

var podName = regexp.MustCompile(`pod-\d+`)

// endState is the state of the backend and all that it owns, without the numbers of pods.
func (fc *fakeCluster) endState() string { return podName.ReplaceAllString(fc.inventory(), "pod-N") }

// The checks of this file can fail: without the step that keeps the invariant they report
// a violation.
func TestInvariantNeedsEachStep(t *testing.T) {
	t.Parallel()
	rollback := lifecycleCases()["rollback: an older image and its version"]
	cases := map[string]func(*fakeCluster, *Reconciler){
		// The order of a plain rollout: first pods, then their registrations.
		"retire last": func(_ *fakeCluster, r *Reconciler) {
			var first, last []phase
			for _, p := range r.phases {
				if p.name == "retire" {
					last = append(last, p)
				} else {
					first = append(first, p)
				}
			}
			r.phases = slices.Concat(first, last)
		},
		// Discovery is taken to follow the APIService at once.
		"retirement is not confirmed": func(fc *fakeCluster, r *Reconciler) {
			fc.discoveryDelay = 3
			r.Aggregator = skipDiscovery{r.Aggregator}
		},
		// Pods are not asked what they serve.
		"retire nothing": func(_ *fakeCluster, r *Reconciler) {
			r.phases = []phase{}
			for _, p := range phases() {
				if p.name != "retire" {
					r.phases = append(r.phases, p)
				}
			}
		},
	}
	for name, mutate := range cases {
		t.Run(name, func(t *testing.T) {
			fc := rollback.cluster(t, "rollback: an older image and its version")
			r := fc.operator("", fc.watched(nil))
			mutate(fc, r)
			fc.reconcileRounds(r, 40)
			if fc.violation == "" {
				t.Errorf("the invariant held without this step; registered %v, image %s", fc.registeredVersions(), fc.deployedImage())
			}
		})
	}
}

// skipDiscovery reports each version as gone from discovery.
type skipDiscovery struct{ Aggregator }

func (skipDiscovery) Discovered(context.Context, []schema.GroupVersion) (*aggregator.Presence, error) {
	return &aggregator.Presence{Asked: []string{"192.0.2.1:6443"}}, nil
}
