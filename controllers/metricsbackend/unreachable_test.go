// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/adoption"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// besideMetricsServer has metrics-server with its APIService, and a backend that may take
// it over.
func besideMetricsServer(t *testing.T, change ...func(*v1alpha1.MetricsBackendSpec)) *fakeCluster {
	t.Helper()
	fc := newFakeCluster(t, newBackend(append(change, adopting(v1alpha1.AdoptionAlways))...))
	stockCluster(fc)
	return fc
}

// hasCanary reports whether the canary API is registered.
func (fc *fakeCluster) hasCanary() bool {
	err := fc.raw.Get(context.Background(), client.ObjectKey{Name: manifests.CanaryAPIServiceName}, &apiregistrationv1.APIService{})
	if client.IgnoreNotFound(err) != nil {
		fc.t.Fatal(err)
	}
	return err == nil
}

// follow reconciles for d in the steps that the operator asks for, with a check after each.
func (fc *fakeCluster) follow(r *Reconciler, d time.Duration, check func()) {
	fc.t.Helper()
	for end := fc.clock.Now().Add(d); fc.clock.Now().Before(end); {
		result, err := reconcileOnce(fc.t, r)
		if err != nil {
			fc.t.Fatal(err)
		}
		check()
		before := fc.clock.Now()
		fc.step()
		if result.RequeueAfter > 0 {
			fc.clock.SetTime(before.Add(min(result.RequeueAfter, stalledResync)))
		}
		check()
	}
}

// Without a way from kube-apiserver to the pods, nothing of someone else is touched, and no
// version is registered beside it, since clients would use that one.
func TestAdoptionOfUnreachablePods(t *testing.T) {
	t.Parallel()
	versions := func(versions ...v1alpha1.ResourceMetricsVersion) func(*v1alpha1.MetricsBackendSpec) {
		return func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics.Versions = versions }
	}
	for name, change := range map[string]func(*v1alpha1.MetricsBackendSpec){
		"both versions": versions("v1", "v1beta1"),
		"v1 beside it":  versions("v1"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := besideMetricsServer(t, change)
			fc.blocked = true
			before := fc.apiService(v1beta1)
			r := fc.live()
			fc.follow(r, 5*time.Minute, func() {
				if fc.hasCanary() || fc.isRegistered(v1) {
					t.Fatalf("registered although the pods cannot be reached:\n%s", fc.show())
				}
			})
			if diff := gocmp.Diff(before, fc.apiService(v1beta1)); diff != "" {
				t.Errorf("metrics-server's APIService (-before +after):\n%s", diff)
			}
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodsUnreachable,
				"kube-apiserver does not reach the pods of Service operator-ns/metrics-serving-cluster", "dial tcp: i/o timeout",
				"kube-apiserver must be able to open TCP connections to port")
			// Equal failures are written once.
			version := fc.backend().ResourceVersion
			fc.follow(r, 4*time.Minute, func() {})
			if fc.backend().ResourceVersion != version {
				t.Error("the status was written again")
			}
			fc.blocked = false
			fc.reconcileUntil(r, fc.isReady)
			if fc.hasCanary() {
				t.Error("the canary API is still registered")
			}
		})
	}
}

// Only the canary API finds out: /readyz answers, or may not be requested. It is registered
// for half a minute at most, and again after pauses that double.
func TestCanaryFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		readyz error
		starts int
	}{
		"readyz answers":      {nil, 3},
		"readyz is forbidden": {apierrors.NewForbidden(schema.GroupResource{Resource: "services/proxy"}, "https:metrics-serving-cluster:https", nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := besideMetricsServer(t)
			fc.blocked = true
			r := fc.live()
			r.adoptionChecker.Requester = answersReadyz{fc, tc.readyz}
			var since time.Time
			var starts []time.Duration
			began := fc.clock.Now()
			fc.follow(r, []time.Duration{5 * time.Minute, 15 * time.Minute, 45 * time.Minute}[tc.starts-1], func() {
				now := fc.clock.Now()
				switch has := fc.hasCanary(); {
				case has && since.IsZero():
					since = now
					starts = append(starts, now.Sub(began).Round(time.Minute))
				case !has:
					since = time.Time{}
				case now.Sub(since) > 30*time.Second+time.Second:
					t.Fatalf("the canary API is registered for %s", now.Sub(since))
				}
				fc.wantPointsTo(v1beta1, metricsServer)
			})
			first := starts[0]
			want := []time.Duration{first, first + 10*time.Minute, first + 31*time.Minute}[:tc.starts]
			for i := range starts {
				if i >= len(want) || (starts[i]-want[i]).Abs() > 2*time.Minute {
					t.Fatalf("registered after %v, want about %v", starts, want)
				}
			}
			if len(starts) != len(want) {
				t.Errorf("registered after %v, want about %v", starts, want)
			}
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodsUnreachable, "/apis/canary.metricsbackend.io/v1alpha1/canaries/cluster")
			// A changed spec is tried at once.
			fc.blocked = false
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Replicas = new(int32(3)) })
			end := fc.clock.Now().Add(3 * time.Minute)
			fc.reconcileUntil(r, fc.isReady)
			if fc.clock.Now().After(end) {
				t.Errorf("a changed spec was tried only after %s", fc.clock.Now().Sub(end)+3*time.Minute)
			}
		})
	}
}

// answersReadyz answers requests to /readyz as given, others as the cluster does.
type answersReadyz struct {
	*fakeCluster
	readyz error
}

func (a answersReadyz) Answers(ctx context.Context, path string) error {
	if strings.HasSuffix(path, "/readyz") {
		return a.readyz
	}
	return a.fakeCluster.Answers(ctx, path)
}

// Pods that become unreachable with the takeover: the APIService is back within half a
// minute, also if the operator restarts, and is not taken again at once.
func TestAdoptionReverted(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts %t", restarts), func(t *testing.T) {
			t.Parallel()
			fc := besideMetricsServer(t)
			r := fc.live()
			spec, restarted := fc.apiService(v1beta1).Spec, false
			var reverted time.Time
			fc.follow(r, 2*time.Minute, func() {
				if fc.blocked && reverted.IsZero() && fc.pointsToNow(v1beta1) == metricsServer {
					reverted = fc.clock.Now()
				}
				if fc.pointsToNow(v1beta1) == ourService && !fc.blocked {
					fc.blocked = true
					fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
				}
				if fc.isRegistered(v1) {
					t.Fatal("v1 is registered before v1beta1 is verified")
				}
				if fc.blocked && restarts && (!restarted || fc.pointsToNow(v1beta1) == metricsServer) {
					restarted = true
					*r = *fc.live()
				}
			})
			if !fc.blocked {
				t.Fatal("it was never taken over")
			}
			after := fc.apiService(v1beta1)
			if diff := gocmp.Diff(spec, after.Spec); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
			for _, key := range []string{v1alpha1.AnnotationPreviousOwner, v1alpha1.AnnotationUnverified} {
				if after.Annotations[key] != "" {
					t.Errorf("annotation %s is left", key)
				}
			}
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonAdoptionReverted,
				"APIService v1beta1.metrics.k8s.io was taken over and is back with its previous owner", "does not answer through kube-apiserver",
				"FailedDiscoveryCheck", "kube-apiserver must be able to open TCP connections to port 10250", "the next try is at "+reverted.Add(adoption.FirstPause).UTC().Format(time.RFC3339))
			fc.blocked = false
			fc.follow(r, 8*time.Minute, func() {
				if fc.pointsToNow(v1beta1) != metricsServer {
					t.Fatal("it is taken over again at once")
				}
			})
			fc.reconcileUntil(r, fc.isReady)
			fc.wantPointsTo(v1beta1, ourService)
			if fc.apiService(v1beta1).Annotations[v1alpha1.AnnotationUnverified] != "" {
				t.Error("it is ready and not verified")
			}
		})
	}
}

// writesConditions is an aggregator that writes the condition of v1beta1 during each request
// that our pods do not answer.
type writesConditions struct{ *fakeCluster }

func (w writesConditions) FreshNodeSample(ctx context.Context, gv schema.GroupVersion, since time.Time) (bool, error) {
	if gv == v1beta1 && w.blocked {
		w.setAvailable(w.apiService(gv), apiregistrationv1.ConditionFalse, fmt.Sprintf("Failed%d", w.clock.Now().Unix()))
	}
	return w.fakeCluster.FreshNodeSample(ctx, gv, since)
}

// Requests whose packets are dropped take so long that the APIService has changed meanwhile.
func TestAdoptionRevertedAfterSlowRequests(t *testing.T) {
	t.Parallel()
	fc := besideMetricsServer(t)
	r := fc.live()
	r.Aggregator = writesConditions{fc}
	fc.followBlockedAtTakeover(r)
	fc.wantPointsTo(v1beta1, metricsServer)
}

// It is reverted within half a minute of the takeover.
func TestAdoptionRevertedInTime(t *testing.T) {
	t.Parallel()
	fc := besideMetricsServer(t)
	r := fc.live()
	fc.reconcileUntil(r, func() bool { return fc.pointsToNow(v1beta1) == ourService })
	fc.blocked = true
	fc.follow(r, 30*time.Second, func() {})
	fc.wantPointsTo(v1beta1, metricsServer)
}

// A previous owner that does not answer cannot do better, so ours stays.
func TestAdoptionNotRevertedToNobody(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy  v1alpha1.AdoptionPolicy
		prepare func(*fakeCluster)
		// fail is what happens to the previous owner after the takeover.
		fail func(*fakeCluster)
	}{
		"it has no endpoint": {
			v1alpha1.AdoptionAlways, func(*fakeCluster) {},
			func(fc *fakeCluster) { fc.scaleMetricsServer(0) },
		},
		"its endpoints never answered": {
			v1alpha1.AdoptionIfUnavailable, func(fc *fakeCluster) {
				fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
				fc.failMetricsServer(errors.New("dial: connection refused"))
			},
			func(*fakeCluster) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := besideMetricsServer(t)
			fc.change(adopting(tc.policy))
			tc.prepare(fc)
			r := fc.live()
			fc.reconcileUntil(r, func() bool {
				fc.blocked = fc.pointsToNow(v1beta1) == ourService
				return fc.blocked
			})
			tc.fail(fc)
			fc.follow(r, time.Minute, func() {})
			fc.wantPointsTo(v1beta1, ourService)
			fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonRequestFailed)
		})
	}
}

// Without a token to ask the previous owner with, its ready endpoints are enough after the
// grace period.
func TestAdoptionRevertedWithoutToken(t *testing.T) {
	t.Parallel()
	fc := besideMetricsServer(t)
	fc.change(adopting(v1alpha1.AdoptionIfUnavailable))
	fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
	r := fc.live(interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
			if strings.HasSuffix(o.GetName(), "-guest") {
				return errors.New("no token")
			}
			return c.SubResource(name).Create(ctx, o, sub, opts...)
		},
	})
	fc.reconcileUntil(r, func() bool {
		fc.blocked = fc.pointsToNow(v1beta1) == ourService
		return fc.blocked
	})
	fc.reconcileUntil(r, func() bool { return fc.pointsToNow(v1beta1) == metricsServer })
}

// What failed before an adoption became final does not count in a later deletion: that waits.
func TestDeletionAfterAdoptionWithoutToken(t *testing.T) {
	t.Parallel()
	for name, failures := range map[string]int{"once": 1, "always": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := besideMetricsServer(t)
			fc.change(adopting(v1alpha1.AdoptionIfUnavailable))
			fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
			fc.failMetricsServer(errors.New("connection refused"))
			asked := 0
			r := fc.live(interceptor.Funcs{
				SubResourceCreate: func(ctx context.Context, c client.Client, name string, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
					if strings.HasSuffix(o.GetName(), "-guest") {
						if asked++; asked <= failures {
							return errors.New("no token")
						}
					}
					return c.SubResource(name).Create(ctx, o, sub, opts...)
				},
			})
			fc.reconcileUntil(r, func() bool {
				fc.blocked = fc.pointsToNow(v1beta1) == ourService
				return asked > 1
			})
			fc.blocked = false
			fc.reconcileUntil(r, func() bool { return fc.isReady() && !lifecycle.IsUnverified(fc.apiService(v1beta1)) })
			fc.clock.Step(time.Hour)
			fc.delete(fc.backend())
			mustReconcile(t, r)
			fc.wantPointsTo(v1beta1, ourService)
			fc.wantCondition(v1alpha1.ConditionReady, "", "", "waits up to 30s for Service kube-system/metrics-server")
		})
	}
}

// failMetricsServer has metrics-server's endpoints fail.
func (fc *fakeCluster) failMetricsServer(err error) {
	for address := range fc.other.serves {
		fc.other.failing[address] = err
	}
}

// The second takeover by one process is on trial like the first one: metrics-server has it
// again if requests fail.
func TestSecondTakeoverIsOnTrial(t *testing.T) {
	t.Parallel()
	fc := besideMetricsServer(t)
	r := fc.live()
	fc.reconcileUntil(r, fc.isReady)
	moveToExisting(fc)
	fc.reconcileUntil(r, func() bool { return fc.isReady() && len(fc.pods()) == 0 })
	fc.clock.Step(time.Hour)
	moveToServing(fc)
	fc.followBlockedAtTakeover(r)
	fc.wantPointsTo(v1beta1, metricsServer)
}

// followBlockedAtTakeover blocks our pods as soon as v1beta1 points to them.
func (fc *fakeCluster) followBlockedAtTakeover(r *Reconciler) {
	fc.t.Helper()
	fc.follow(r, 4*time.Minute, func() {
		if fc.pointsToNow(v1beta1) == ourService {
			fc.blocked = true
		}
		if fc.isRegistered(v1) {
			fc.t.Fatalf("v1 is registered before v1beta1 is verified:\n%s", fc.show())
		}
	})
	if !fc.blocked {
		fc.t.Fatalf("it was never taken over:\n%s", fc.show())
	}
}

// A moved APIService stays unavailable until the aggregator has given up on its former
// Service, which may take five seconds: these failures are not those of our pods.
func TestStaleConditionRevertsNothing(t *testing.T) {
	t.Parallel()
	fc := besideMetricsServer(t)
	fc.change(adopting(v1alpha1.AdoptionIfUnavailable))
	fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
	fc.recheckDelay = 4 * time.Second // seen by the pass after that
	r, adopted := fc.live(), false
	fc.follow(r, 4*time.Minute, func() {
		ours := fc.pointsToNow(v1beta1) == ourService
		if adopted && !ours {
			t.Fatalf("it was reverted:\n%s", fc.show())
		}
		adopted = ours
	})
	if !fc.isReady() {
		t.Errorf("not ready:\n%s", fc.show())
	}
}

// A pause of adoptions concerns only APIServices that are to move.
func TestPausedAdoptionKeepsTheRest(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	r := fc.live()
	mustReconcile(t, r)
	r.history(backendName).adoption.Fail(fc.clock.Now(), lifecycle.Pause{Reason: v1alpha1.ReasonAdoptionReverted, Message: "another version was reverted"})
	fc.reconcileRounds(r, 3)
	if stalled := fc.condition(v1alpha1.ConditionStalled); stalled.Type != "" || !fc.isReady() {
		t.Errorf("what is registered is stalled:\n%s", fc.show())
	}
}

// An implementation that no MetricsBackend deployed is someone else's, whatever label its
// APIService has.
func TestOthersBehindALabel(t *testing.T) {
	t.Parallel()
	only := func(version v1alpha1.ResourceMetricsVersion) func(*v1alpha1.MetricsBackendSpec) {
		return func(spec *v1alpha1.MetricsBackendSpec) {
			spec.ResourceMetrics.Versions = []v1alpha1.ResourceMetricsVersion{version}
		}
	}
	for name, tc := range map[string]struct {
		version v1alpha1.ResourceMetricsVersion
		// waiting is why the younger backend is stalled until the older one is deleted.
		waiting string
		deleted bool
	}{
		"its label goes":        {"v1beta1", v1alpha1.ReasonConflict, true},
		"another version of it": {"v1", v1alpha1.ReasonPodsUnreachable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			always := adopting(v1alpha1.AdoptionAlways)
			fc := newFakeCluster(t, newBackend(only(tc.version), always), olderBackend(only("v1beta1"), existing, always))
			stockCluster(fc)
			fc.blocked = true
			untouched := func() {
				if fc.pointsToNow(v1beta1) != metricsServer || fc.isRegistered(v1) {
					t.Fatalf("v1beta1 points to %q, v1 to %q:\n%s", fc.pointsToNow(v1beta1), fc.pointsToNow(v1), fc.show())
				}
			}
			r := fc.live()
			fc.reconcileBothUntil(r, func() bool {
				untouched()
				return fc.isStalledBy(tc.waiting) && fc.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue
			})
			if tc.deleted {
				fc.delete(olderBackend())
			}
			for range 30 {
				fc.reconcileBoth(r)
				untouched()
				fc.step()
			}
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonPodsUnreachable)
		})
	}
}

// An APIService that the operator created for spec.existing is on trial at our pods, too.
func TestMoveFromExistingReverted(t *testing.T) {
	t.Parallel()
	for _, policy := range []v1alpha1.AdoptionPolicy{v1alpha1.AdoptionAlways, v1alpha1.AdoptionRefuse} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			fc := newFakeCluster(t, newBackend(existing, adopting(policy)))
			fc.runMetricsServer(2, v1beta1)
			r := fc.live()
			fc.reconcileUntil(r, fc.isReady)
			moveToServing(fc)
			fc.followBlockedAtTakeover(r)
			fc.wantPointsTo(v1beta1, metricsServer)
			fc.wantCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonAdoptionReverted, "is back with its previous owner")
		})
	}
}

// A canary API that an ended process left is deleted at the first look, whatever the spec is
// now.
func TestCanaryLeftBehind(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fakeCluster){
		"nothing changed": func(*fakeCluster) {},
		"adoption is Refuse": func(fc *fakeCluster) {
			fc.change(adopting(v1alpha1.AdoptionRefuse))
		},
		"the backend is deleted": func(fc *fakeCluster) { fc.delete(fc.backend()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fc := besideMetricsServer(t)
			fc.blocked = true
			r := fc.live()
			r.adoptionChecker.Requester = answersReadyz{fc, nil}
			fc.reconcileUntil(r, fc.hasCanary)
			change(fc)
			next := fc.live()
			next.adoptionChecker.Requester = answersReadyz{fc, apierrors.NewServiceUnavailable("no")}
			mustReconcile(t, next)
			if fc.hasCanary() {
				t.Error("it is left")
			}
		})
	}
}

// Two checks share the name of the APIService: they do not mix, and what a MetricsBackend
// that is gone left does not last.
func TestCanaryOfAnotherBackend(t *testing.T) {
	t.Parallel()
	fc := besideMetricsServer(t)
	r := fc.live()
	fc.reconcileUntil(r, func() bool { return fc.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue })
	began := fc.clock.Now()
	fc.create(&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{
		Name: manifests.CanaryAPIServiceName, Labels: map[string]string{v1alpha1.LabelCanary: "gone"}, CreationTimestamp: metav1.NewTime(began),
	}})
	fc.follow(r, 4*time.Minute, func() {
		if fc.pointsToNow(v1beta1) == ourService && fc.clock.Now().Sub(began) < 50*time.Second {
			t.Fatal("taken over by the check of another backend")
		}
	})
	fc.wantPointsTo(v1beta1, ourService)
	if fc.hasCanary() {
		t.Error("the canary API is left")
	}
}
