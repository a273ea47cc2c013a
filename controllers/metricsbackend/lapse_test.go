// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// reconcileAll reconciles every backend, and steps.
func (fc *fakeCluster) reconcileAll(r *Reconciler) {
	fc.t.Helper()
	var list v1alpha1.MetricsBackendList
	fc.list(&list)
	for i := range list.Items {
		request := ctrl.Request{NamespacedName: types.NamespacedName{Name: list.Items[i].Name}}
		if _, err := r.Reconcile(fc.t.Context(), request); err != nil && !apierrors.IsConflict(err) {
			fc.t.Fatalf("%s: %v", list.Items[i].Name, err)
		}
		fc.checkInvariant("after a reconciliation of " + list.Items[i].Name)
	}
	fc.step()
}

// reconcileAllUntil reconciles all backends until done.
func (fc *fakeCluster) reconcileAllUntil(r *Reconciler, what string, done func() bool) {
	fc.t.Helper()
	for range 100 {
		if done() {
			return
		}
		fc.reconcileAll(r)
	}
	fc.t.Fatalf("not reached: %s\n%s", what, fc.showAll())
}

// passTime reconciles all backends for 65 s, and sets the clock forward meanwhile.
func (fc *fakeCluster) passTime(r *Reconciler, d time.Duration) {
	fc.t.Helper()
	for range 5 { // longer than requestGrace
		fc.reconcileAll(r)
	}
	fc.clock.Step(d)
	for range 8 {
		fc.reconcileAll(r)
	}
	if fc.violation != "" {
		fc.t.Errorf("invariant broken: %s", fc.violation)
	}
}

func (fc *fakeCluster) showAll() string {
	var list v1alpha1.MetricsBackendList
	fc.list(&list)
	out := ""
	for i := range list.Items {
		out += list.Items[i].Name + "\n" + showStatus(&list.Items[i])
	}
	return out
}

func (fc *fakeCluster) backendNamed(name string) *v1alpha1.MetricsBackend {
	fc.t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	fc.get(client.ObjectKey{Name: name}, backend)
	return backend
}

func (fc *fakeCluster) changeNamed(name string, change func(*v1alpha1.MetricsBackendSpec)) {
	fc.t.Helper()
	backend := fc.backendNamed(name)
	change(&backend.Spec)
	backend.Generation++
	fc.update(backend)
}

// holds reports whether the backend has both versions.
func (fc *fakeCluster) holds(name string) bool {
	service := systemNamespace + "/metrics-serving-" + name
	return fc.pointsToNow(v1) == service && fc.pointsToNow(v1beta1) == service
}

// wantHeld checks which backend has both versions.
func (fc *fakeCluster) wantHeld(name string) {
	fc.t.Helper()
	if !fc.holds(name) {
		fc.t.Fatalf("v1 points to %q, v1beta1 to %q, want %s\n%s", fc.pointsToNow(v1), fc.pointsToNow(v1beta1), name, fc.showAll())
	}
}

// serveNothing is the spec of a backend that never becomes available.
func serveNothing(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageNothing }

// noDeletions reports deletions of APIServices.
func noDeletions(t *testing.T) interceptor.Funcs {
	return interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, ok := o.(*apiregistrationv1.APIService); ok {
				t.Errorf("APIService %s was deleted", o.GetName())
			}
			return c.Delete(ctx, o, opts...)
		},
	}
}

// An older backend that is not available for ten minutes loses its versions to a younger
// one that is ready, not earlier, and both say so.
func TestOlderBackendBlocksForTenMinutes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		older, younger func(*v1alpha1.MetricsBackendSpec)
		// happen is a fault of the older backend, which is available until then.
		happen func(*fakeCluster)
	}{
		"its requests fail": {happen: func(fc *fakeCluster) { fc.failingService = olderService }},
		"its APIServices are deleted, and its pods fail": {happen: func(fc *fakeCluster) {
			fc.silent = func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelBackend] == olderName }
			fc.delete(fc.apiService(v1))
			fc.delete(fc.apiService(v1beta1))
		}},
		"its image serves nothing": {older: serveNothing},
		// It has applied the policy of both.
		"its image serves nothing, and both have external metrics": {
			older: func(spec *v1alpha1.MetricsBackendSpec) { withExternal(spec); serveNothing(spec) }, younger: withExternal,
		},
		"its namespace does not exist": {older: func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = "other-ns" }},
		"its namespace is not managed": {older: func(spec *v1alpha1.MetricsBackendSpec) { spec.Namespace = "foreign" }},
		"a Secret does not exist": {older: func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		}},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, change := range []*func(*v1alpha1.MetricsBackendSpec){&tc.older, &tc.younger} {
				if *change == nil {
					*change = everything
				}
			}
			var fc *fakeCluster
			if tc.happen != nil {
				fc, _ = withTwoBackends(t)
				tc.happen(fc)
			} else {
				fc = newFakeCluster(t, newBackend(tc.younger), olderBackend(tc.older))
			}
			r := fc.live(noDeletions(t))
			fc.reconcileAllUntil(r, "the younger backend waits", fc.isWaitingForOlder)
			fc.passTime(r, 8*time.Minute)
			if fc.holds(backendName) {
				t.Fatalf("taken over too early\n%s", fc.showAll())
			}
			fc.passTime(r, 2*time.Minute)
			fc.wantHeld(backendName)
			fc.reconcileAllUntil(r, "the younger backend is ready", fc.isReady)
			wantEvent(t, r, "ClaimLapsed", `MetricsBackend "cluster", which is younger, has had v1.metrics.k8s.io since`)
			older := fc.backendNamed(olderName)
			registered := ptr.Deref(meta.FindStatusCondition(older.Status.Conditions, v1alpha1.ConditionAPIServicesRegistered), metav1.Condition{})
			for _, part := range []string{`MetricsBackend "cluster", which is younger, has had v1.metrics.k8s.io since the claim lapsed at 2026-11-01T12:1`, "delete"} {
				if !strings.Contains(registered.Message, part) {
					t.Errorf("the older backend says %q, want %q in it", registered.Message, part)
				}
			}
			for _, version := range fc.backend().Status.APIServices {
				if want := `the claim of MetricsBackend "older", which is older, lapsed at 2026-11-01T12:1`; !strings.Contains(version.Message, want) {
					t.Errorf("the younger backend says of %s: %q, want %q in it", version.Name, version.Message, want)
				}
			}
		})
	}
}

// A claim that lapsed is not regained, whatever happens to the versions.
func TestLapsedClaimStaysLapsed(t *testing.T) {
	t.Parallel()
	cases := map[string]func(*fakeCluster){
		"the older backend works again": func(*fakeCluster) {},
		"the APIServices are deleted": func(fc *fakeCluster) {
			fc.delete(fc.apiService(v1))
			fc.delete(fc.apiService(v1beta1))
		},
		"the younger backend breaks": func(fc *fakeCluster) { fc.failingService = ourService },
	}
	for name, happen := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := prepared(t, "lapsed", lapsed)
			r := fc.live()
			happen(fc)
			fc.passTime(r, time.Minute)
			fc.passTime(r, time.Hour)
			fc.wantHeld(backendName)
		})
	}
}

// A claim is regained when the younger backend releases the version: in place while its
// pods still serve, and without a gap.
func TestLapsedClaimIsRegained(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		release func(*fakeCluster)
		// inPlace: no APIService is deleted.
		inPlace bool
		want    func(*fakeCluster) bool
	}{
		"the younger backend is deleted": {
			release: func(fc *fakeCluster) { fc.delete(fc.backend()) }, inPlace: true,
			want: func(fc *fakeCluster) bool { return fc.holds(olderName) && fc.isGone() },
		},
		"the younger backend no longer names a version": {
			release: func(fc *fakeCluster) { fc.change(onlyV1) },
			want: func(fc *fakeCluster) bool {
				return fc.pointsToNow(v1beta1) == olderService && fc.pointsToNow(v1) == ourService
			},
		},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := prepared(t, "lapsed", lapsed)
			r := fc.live()
			if tc.inPlace {
				r = fc.live(noDeletions(t))
			}
			// Another process knows nothing of its predecessor's grace periods.
			fc.passTime(r, time.Minute)
			tc.release(fc)
			fc.reconcileAllUntil(r, name, func() bool { return tc.want(fc) })
			fc.passTime(r, time.Hour)
			if !tc.want(fc) {
				t.Errorf("it did not last\n%s", fc.showAll())
			}
		})
	}
}

// An older backend that is available once within ten minutes keeps its versions.
func TestClaimDoesNotLapse(t *testing.T) {
	t.Parallel()
	fc, r := withTwoBackends(t)
	for range 4 {
		fc.failingService = olderService
		fc.passTime(r, 8*time.Minute)
		fc.failingService = ""
		fc.passTime(r, 0)
	}
	fc.wantHeld(olderName)
	// A version that works is not lost with one that does not.
	fc.changeNamed(olderName, func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageV1beta1 })
	fc.reconcileAllUntil(r, "v1 is retired", func() bool { return fc.pointsToNow(v1) == "" })
	fc.passTime(r, 8*time.Minute)
	fc.passTime(r, 3*time.Minute)
	fc.wantPointsTo(v1, ourService)
	fc.wantPointsTo(v1beta1, olderService)
	// Nor is the younger backend's own version taken from it now.
	fc.changeNamed(olderName, func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = "" })
	fc.passTime(r, time.Hour)
	fc.wantPointsTo(v1, ourService)
	fc.wantPointsTo(v1beta1, olderService)
}

// Of three backends, the oldest that can serve has the versions. A backend that only waits
// for an older one loses nothing.
func TestClaimsOfThreeBackends(t *testing.T) {
	t.Parallel()
	const middleName = "middle"
	cases := map[string]struct {
		older, middle func(*v1alpha1.MetricsBackendSpec)
		want          string
	}{
		"the oldest serves nothing":     {older: serveNothing, middle: everything, want: middleName},
		"the two oldest serve nothing":  {older: serveNothing, middle: serveNothing, want: backendName},
		"only the middle one is broken": {older: everything, middle: serveNothing, want: olderName},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			middle := newBackend(tc.middle)
			middle.Name, middle.UID = middleName, "uid-"+middleName
			middle.CreationTimestamp = metav1.NewTime(middle.CreationTimestamp.Add(-time.Minute))
			fc := newFakeCluster(t, newBackend(), middle, olderBackend(tc.older))
			r := fc.live()
			fc.passTime(r, 8*time.Minute)
			fc.passTime(r, 3*time.Minute)
			fc.wantHeld(tc.want)
			fc.passTime(r, time.Hour)
			fc.wantHeld(tc.want)
			if tc.want != backendName {
				return
			}
			// All work again, and the one that has the versions is deleted: the oldest gets them.
			for _, name := range []string{olderName, middleName} {
				fc.changeNamed(name, everything)
			}
			fc.passTime(r, time.Minute)
			fc.wantHeld(backendName)
			fc.delete(fc.backend())
			fc.reconcileAllUntil(r, "the oldest has them", func() bool { return fc.holds(olderName) && fc.isGone() })
		})
	}
}

func everything(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = "" }

// Within the same second, the names decide whose claim may lapse.
func TestLapseInTheSameSecond(t *testing.T) {
	t.Parallel()
	first := olderBackend(serveNothing)
	first.Name, first.CreationTimestamp = "a", newBackend().CreationTimestamp
	fc := newFakeCluster(t, newBackend(), first)
	r := fc.live()
	fc.reconcileAllUntil(r, "it waits", fc.isWaitingForOlder)
	fc.passTime(r, 8*time.Minute)
	fc.passTime(r, 3*time.Minute)
	fc.wantHeld(backendName)
}

// Two backends that are both broken change nothing, and the first that works has the
// versions.
func TestBothBackendsBroken(t *testing.T) {
	t.Parallel()
	for _, name := range []string{olderName, backendName} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend(serveNothing), olderBackend(serveNothing))
			r := fc.live()
			fc.passTime(r, time.Hour)
			fc.passTime(r, time.Hour)
			fc.wantPointsTo(v1, "")
			fc.changeNamed(name, everything)
			fc.reconcileAllUntil(r, name+" has them", func() bool { return fc.holds(name) })
			fc.passTime(r, time.Hour)
			fc.wantHeld(name)
		})
	}
}

// The older backend is available again at the moment of the takeover, and has not seen it:
// the versions are not deleted, and do not go back.
func TestRecoveryAtTheTakeover(t *testing.T) {
	t.Parallel()
	fc, _ := withTwoBackends(t)
	raced := false
	var r *Reconciler
	r = fc.live(noDeletions(t), interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if service, ok := o.(*apiregistrationv1ac.APIServiceApplyConfiguration); ok && fc.failingService != "" && !raced && *service.Spec.Service.Name == "metrics-serving-"+backendName {
				raced = true
				fc.failingService = ""
				if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: olderName}}); err != nil {
					t.Error(err)
				}
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	fc.failingService = olderService
	fc.passTime(r, 8*time.Minute)
	fc.passTime(r, 3*time.Minute)
	if !raced {
		t.Fatal("no takeover")
	}
	for range 2 {
		fc.wantPointsTo(v1, ourService)
		fc.wantPointsTo(v1beta1, olderService)
		fc.passTime(r, time.Hour)
	}
}

// aboutToLapse has the older backend with the versions, and "cluster" waiting, since the
// older one's requests have failed for almost ten minutes.
func aboutToLapse(fc *fakeCluster) {
	fc.create(olderBackend())
	r := fc.reconciler()
	fc.reconcileAllUntil(r, "the older backend has the versions", func() bool { return fc.holds(olderName) && fc.isWaitingForOlder() })
	fc.failingService = olderService
	fc.passTime(r, 9*time.Minute-30*time.Second)
}

func lapsed(fc *fakeCluster) {
	aboutToLapse(fc)
	fc.reconcileAllUntil(fc.reconciler(), "the claims lapse", fc.hasLapsed)
	fc.failingService = ""
	fc.passTime(fc.reconciler(), time.Minute)
}

// hasLapsed reports whether "cluster" has the versions, and both say so.
func (fc *fakeCluster) hasLapsed() bool {
	return fc.holds(backendName) && fc.isReady() && len(fc.backendNamed(olderName).Status.LapsedClaims) == 2 &&
		strings.Contains(fc.backend().Status.APIServices[1].Message, "lapsed at ")
}

// The operator stops after each call that changes anything, while a claim lapses, is
// regained, or one of the two backends is deleted. A new process gets to the same end, no
// version is deleted, and none is in discovery that a ready pod does not serve.
func TestLapseStoppedAfterEachCall(t *testing.T) {
	t.Parallel()
	gone := func(fc *fakeCluster, name string) bool {
		return apierrors.IsNotFound(fc.raw.Get(context.Background(), client.ObjectKey{Name: name}, &v1alpha1.MetricsBackend{}))
	}
	onlyYounger := func(fc *fakeCluster) bool { return gone(fc, olderName) && fc.holds(backendName) && fc.isReady() }
	cases := map[string]struct {
		prepare, change func(*fakeCluster)
		done            func(*fakeCluster) bool
	}{
		"a claim lapses": {aboutToLapse, func(fc *fakeCluster) { fc.clock.Step(time.Minute) }, (*fakeCluster).hasLapsed},
		"a claim lapses while its backend is deleted": {
			aboutToLapse, func(fc *fakeCluster) { fc.clock.Step(time.Minute); fc.delete(fc.backendNamed(olderName)) }, onlyYounger,
		},
		"a claim is regained": {
			lapsed, func(fc *fakeCluster) { fc.delete(fc.backend()) },
			func(fc *fakeCluster) bool {
				return gone(fc, backendName) && fc.holds(olderName) && len(fc.backendNamed(olderName).Status.LapsedClaims) == 0
			},
		},
		"the older backend is deleted": {lapsed, func(fc *fakeCluster) { fc.delete(fc.backendNamed(olderName)) }, onlyYounger},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := func() *fakeCluster {
				fc := prepared(t, "lapse "+name, tc.prepare)
				tc.change(fc)
				return fc
			}
			run := func(fc *fakeCluster, after func(call, bool)) string {
				fc.reconcileAllUntil(fc.reconciler(noDeletions(t), fc.watched(after)), name, func() bool { return tc.done(fc) })
				if fc.violation != "" {
					t.Errorf("invariant broken: %s", fc.violation)
				}
				return fc.endState()
			}
			var stops []stop
			fc := start()
			want := run(fc, func(c call, changed bool) {
				if changed {
					s := &snapshot{}
					s.take(fc)
					stops = append(stops, stop{c.name, s})
				}
			})
			if len(stops) < 3 {
				t.Fatalf("only %d states", len(stops))
			}
			for i, s := range sampledStops(stops) {
				if diff := cmp.Diff(want, run(s.state.restore(t), nil)); diff != "" || t.Failed() {
					t.Fatalf("stopped after call %d, %s (-without a stop +with it):\n%s", i, s.after, diff)
				}
			}
			t.Logf("%d states", len(stops))
		})
	}
}

// A claim that lapsed causes no writes, whether or not the older backend works again.
func TestLapsedClaimIsSteady(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]func(*fakeCluster){
		"the older backend works again": func(*fakeCluster) {},
		"the older backend's pods are silent": func(fc *fakeCluster) {
			fc.silent = func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelBackend] == olderName }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := prepared(t, "lapsed", lapsed)
			r := fc.reconciler()
			happen(fc)
			fc.passTime(r, time.Minute)
			fc.passTime(r, time.Hour)
			before := fc.stored()
			for range 60 {
				fc.reconcileAll(r)
				fc.clock.Step(time.Minute)
			}
			if diff := cmp.Diff(before, fc.stored()); diff != "" {
				t.Errorf("written although nothing happened (-before +after):\n%s", diff)
			}
		})
	}
}

func TestLapsesAt(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	at := func(minute int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute)) }
	available := func(status metav1.ConditionStatus, minute int) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionAvailable, Status: status, LastTransitionTime: at(minute)}}
	}
	version := func(since *metav1.Time) []v1alpha1.APIServiceStatus {
		return []v1alpha1.APIServiceStatus{{Name: apiServiceName(v1), UnavailableSince: since}}
	}
	cases := map[string]struct {
		status v1alpha1.MetricsBackendStatus
		want   time.Time
	}{
		"never looked at":      {},
		"available":            {status: v1alpha1.MetricsBackendStatus{Conditions: available("True", 1), APIServices: version(ptr.To(at(0)))}},
		"of no known version":  {status: v1alpha1.MetricsBackendStatus{Conditions: available("False", 1)}, want: noon.Add(11 * time.Minute)},
		"nothing known yet":    {status: v1alpha1.MetricsBackendStatus{Conditions: available("Unknown", 2)}, want: noon.Add(12 * time.Minute)},
		"of another version":   {status: v1alpha1.MetricsBackendStatus{Conditions: available("False", 1), APIServices: version(nil)}},
		"the version is later": {status: v1alpha1.MetricsBackendStatus{Conditions: available("False", 1), APIServices: version(ptr.To(at(3)))}, want: noon.Add(13 * time.Minute)},
		"the backend is later": {status: v1alpha1.MetricsBackendStatus{Conditions: available("False", 5), APIServices: version(ptr.To(at(3)))}, want: noon.Add(15 * time.Minute)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lapsesAt(&v1alpha1.MetricsBackend{Status: tc.status}, v1)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
