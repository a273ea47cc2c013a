// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// besideTheirs has a backend of our own pods, and metrics-server runs beside it.
func besideTheirs(w *world) {
	w.runMetricsServer(2, v1beta1)
	w.theirs.watched = true
	becomeReady(w)
}

func toServing(w *world) { w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil }) }

func toExisting(w *world) { w.change(existing) }

// moves are the states between two writes that matter, in the order in which they
// were first seen.
func (w *world) moves(r *Reconciler, done func() bool) []string {
	w.t.Helper()
	var seen []string
	w.settle(r, func() bool {
		pods := "no pods"
		if len(w.pods()) > 0 {
			pods = "pods"
		}
		short := strings.NewReplacer(metricsServer, "theirs", ourService, "ours")
		state := short.Replace("v1:" + w.leadsNow(v1) + " v1beta1:" + w.leadsNow(v1beta1) + " " + pods)
		if !slices.Contains(seen, state) {
			seen = append(seen, state)
		}
		return done()
	})
	return seen
}

// What serves less takes over after what it lacks was retired, and our pods go last.
func TestMoveToExisting(t *testing.T) {
	t.Parallel()
	w := prepared(t, "beside theirs", besideTheirs)
	uid := w.apiService(v1beta1).UID
	r := w.live()
	toExisting(w)
	want := []string{
		"v1:ours v1beta1:ours pods",
		"v1: v1beta1:ours pods",
		"v1: v1beta1:theirs pods",
		"v1: v1beta1:theirs no pods",
	}
	if diff := cmp.Diff(want, w.moves(r, func() bool { return w.isReady() && len(w.pods()) == 0 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if w.apiService(v1beta1).UID != uid {
		t.Error("v1beta1 was deleted and made anew")
	}
	if live := w.apiService(v1beta1); !live.Spec.InsecureSkipTLSVerify || len(live.Spec.CABundle) > 0 {
		t.Errorf("verified by %q, insecure %t", live.Spec.CABundle, live.Spec.InsecureSkipTLSVerify)
	}
	if got := w.inventory(); strings.Contains(got, "Deployment ") || strings.Contains(got, "Secret ") {
		t.Errorf("left behind:\n%s", got)
	}
	w.guestHasNoRights()
	wantEvent(t, r, "VersionMoved", "APIService v1beta1.metrics.k8s.io leads to Service kube-system/metrics-server now")
}

// Our pods are ready before anything leads to them; then v1beta1 moves, and v1
// comes last.
func TestMoveToServing(t *testing.T) {
	t.Parallel()
	w := prepared(t, "existing", existingWorld)
	uid := w.apiService(v1beta1).UID
	r := w.live()
	toServing(w)
	want := []string{
		"v1: v1beta1:theirs no pods",
		"v1: v1beta1:theirs pods",
		"v1:ours v1beta1:ours pods",
	}
	if diff := cmp.Diff(want, w.moves(r, w.isReady)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	live := w.apiService(v1beta1)
	if live.UID != uid {
		t.Error("v1beta1 was deleted and made anew")
	}
	if _, err := previousOwner(live); err != nil {
		t.Errorf("the record of the takeover is lost: %v", err)
	}
	// There and back again, and handed back.
	toExisting(w)
	w.settle(r, func() bool { return w.isReady() && len(w.pods()) == 0 })
	toServing(w)
	w.settle(r, func() bool { return w.isReady() && w.isRegistered(v1) })
	w.delete(w.backend())
	w.settle(r, w.isGone)
	if diff := cmp.Diff(stockAPIService().Spec, w.apiService(v1beta1).Spec); diff != "" {
		t.Errorf("(-stock +handed back):\n%s", diff)
	}
}

// A move waits for the endpoints' soak from its own beginning, however often the
// APIService was moved before.
func TestEachMoveWaits(t *testing.T) {
	t.Parallel()
	w := prepared(t, "existing", existingWorld)
	w.change(onlyV1beta1)
	r := w.live()
	toServing(w)
	w.settle(r, w.isReady)
	toExisting(w)
	w.settle(r, func() bool { return w.isReady() && len(w.pods()) == 0 })
	toServing(w)
	w.settle(r, w.isReady)
	w.clock.Step(time.Hour)
	toExisting(w)
	mustReconcile(t, r)
	mustReconcile(t, r)
	w.clock.Step(endpointSoak - time.Second)
	mustReconcile(t, r)
	if got := w.leadsNow(v1beta1); got != ourService {
		t.Fatalf("v1beta1 leads to %s before the soak is over", got)
	}
	w.clock.Step(time.Second)
	mustReconcile(t, r)
	w.wantLeadsTo(v1beta1, metricsServer)
}

// Until each kube-apiserver follows, and a soak longer, our pods go on serving.
func TestMoveIsConfirmed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		world   func(*world)
		message string
		soak    time.Duration
	}{
		"one lags": {
			world:   func(w *world) { w.replicas[1].lags = true },
			message: "v1beta1.metrics.k8s.io leads elsewhere, but kube-apiserver 192.0.2.2:6443 does not follow yet",
		},
		"one is down": {
			world:   func(w *world) { w.replicas[1].down = true },
			message: "kube-apiserver 192.0.2.2:6443 cannot be asked, this waits 1m30s", soak: discoverySoak,
		},
		"none has an address": {
			world:   func(w *world) { w.unreachable = true },
			message: "the kube-apiservers' own addresses cannot be read, this waits 1m30s", soak: discoverySoak,
		},
		"all follow": {
			world:   func(*world) {},
			message: "leads elsewhere in every kube-apiserver, this waits 10s", soak: aggregatorSoak,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "beside theirs", besideTheirs)
			w.change(onlyV1beta1)
			becomeReady(w)
			replica := *w.replicas[1]
			defer func() { *w.replicas[1] = replica }()
			r := w.live()
			toExisting(w)
			w.settle(r, func() bool { return w.leadsNow(v1beta1) == metricsServer })
			tc.world(w)
			// The first look is what the soak is counted from.
			mustReconcile(t, r)
			mustReconcile(t, r)
			if c := w.condition(v1alpha1.ConditionReady); !strings.Contains(c.Message, tc.message) {
				t.Fatalf("Ready is %+v, want %q", c, tc.message)
			}
			if tc.soak == 0 {
				w.clock.Step(time.Hour)
				mustReconcile(t, r)
				if !w.deployed() {
					t.Fatal("the Deployment went although a kube-apiserver sends requests to it")
				}
				*w.replicas[1] = replica
				w.settle(r, func() bool { return !w.deployed() && w.isReady() })
				return
			}
			w.clock.Step(tc.soak - time.Second)
			mustReconcile(t, r)
			if !w.deployed() {
				t.Fatal("the Deployment went before the soak was over")
			}
			w.clock.Step(2 * time.Second)
			mustReconcile(t, r)
			if w.deployed() {
				t.Error("the Deployment is still there after the soak")
			}
		})
	}
}

func (w *world) deployed() bool { return strings.Contains(w.inventory(), "Deployment ") }

// A move that cannot be finished takes nothing away.
func TestMoveToWhoDoesNotServe(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		world  func(*world)
		reason string
	}{
		"nobody answers": {
			world: func(w *world) {
				w.theirs.mute["192.168.0.1:10250"], w.theirs.mute["192.168.0.2:10250"] = errors.New("refused"), errors.New("refused")
			},
			reason: v1alpha1.ReasonProbeFailed,
		},
		"one does not answer":      {world: func(w *world) { w.theirs.mute["192.168.0.1:10250"] = errors.New("refused") }, reason: v1alpha1.ReasonProbeFailed},
		"nobody is there":          {world: func(w *world) { w.scaleMetricsServer(0) }, reason: v1alpha1.ReasonNoReadyEndpoint},
		"it serves no metrics":     {world: func(w *world) { w.scaleMetricsServer(2) }, reason: v1alpha1.ReasonVersionNotServed},
		"its Service is not there": {world: func(w *world) { w.delete(theirService(w)) }, reason: v1alpha1.ReasonServiceMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "beside theirs", besideTheirs)
			r := w.live()
			tc.world(w)
			toExisting(w)
			w.rounds(r, 10)
			w.wantRegistered("v1", "v1beta1")
			if len(w.pods()) != 2 || w.everBroken != "" {
				t.Errorf("%d pods, %s", len(w.pods()), w.everBroken)
			}
			w.wantCondition(v1alpha1.ConditionServingReady, "", tc.reason)
			toServing(w)
			w.settle(r, w.isReady)
		})
	}
}

// The mirror of TestMoveToWhoDoesNotServe: pods that are ready, since their gate
// looks only at what leads to them, and serve none of the versions.
func TestMoveToServingThatServesNothing(t *testing.T) {
	t.Parallel()
	w := prepared(t, "existing", existingWorld)
	r := w.live()
	w.ungated = true
	// Of the operator's own making: let go of, it would not be handed back but deleted.
	live := w.apiService(v1beta1)
	live.Annotations = nil
	w.update(live)
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Existing = nil
		spec.Serving.Image = imageNothing
	})
	w.settle(r, func() bool {
		return len(w.pods()) == 2 && w.condition(v1alpha1.ConditionServingReady).Reason == v1alpha1.ReasonVersionNotServed
	})
	w.rounds(r, 10)
	if got := w.leadsNow(v1beta1); got != metricsServer || w.apiService(v1beta1).UID != live.UID {
		t.Errorf("v1beta1 leads to %q, want it left where it answers", got)
	}
	w.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = imageBoth })
	w.settle(r, w.isReady)
}

// Our image serves less than what was there before: that is retired first.
func TestMoveToServingThatServesLess(t *testing.T) {
	t.Parallel()
	w := prepared(t, "existing", existingWorld)
	r := w.live()
	w.scaleMetricsServer(2, v1, v1beta1)
	w.settle(r, func() bool { return w.isReady() && w.isRegistered(v1) })
	w.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Existing = nil
		spec.Serving.Image = imageV1beta1
	})
	want := []string{
		"v1:theirs v1beta1:theirs no pods",
		"v1:theirs v1beta1:theirs pods",
		"v1: v1beta1:theirs pods",
		"v1: v1beta1:ours pods",
	}
	got := w.moves(r, func() bool {
		return w.leadsNow(v1beta1) == ourService && w.condition(v1alpha1.ConditionReady).Reason == v1alpha1.ReasonVersionNotServed
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The certificate of pods that are gone must raise no alarm when it would expire.
func TestCertificateSeriesEnd(t *testing.T) {
	w := newWorld(t, newBackend())
	besideTheirs(w)
	r := w.reconciler()
	mustReconcile(t, r)
	toExisting(w)
	w.settle(r, func() bool { return w.isReady() && !w.deployed() && len(w.pods()) == 0 })
	mustReconcile(t, r)
	if certificateGauge.DeleteLabelValues(backendName) {
		t.Error("there is a series of the certificate of pods that are gone")
	}
}
