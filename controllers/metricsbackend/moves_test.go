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
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// besideOther has a backend with our own pods, and metrics-server beside it.
func besideOther(fc *fakeCluster) {
	fc.runMetricsServer(2, v1beta1)
	fc.other.checked = true
	becomeReady(fc)
}

func moveToServing(fc *fakeCluster) {
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing = nil })
}

func moveToExisting(fc *fakeCluster) { fc.change(existing) }

// moves returns the relevant states between writes, in the order in which they were first
// seen.
func (fc *fakeCluster) moves(r *Reconciler, done func() bool) []string {
	fc.t.Helper()
	var seen []string
	fc.reconcileUntil(r, func() bool {
		pods := "no pods"
		if len(fc.pods()) > 0 {
			pods = "pods"
		}
		short := strings.NewReplacer(metricsServer, "theirs", ourService, "ours")
		state := short.Replace("v1:" + fc.pointsToNow(v1) + " v1beta1:" + fc.pointsToNow(v1beta1) + " " + pods)
		if !slices.Contains(seen, state) {
			seen = append(seen, state)
		}
		return done()
	})
	return seen
}

// Our pods are ready before any APIService points to them; then v1beta1 moves, and v1 is
// registered last.
func TestMoveToServing(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	uid := fc.apiService(v1beta1).UID
	r := fc.live()
	moveToServing(fc)
	want := []string{
		"v1: v1beta1:theirs no pods",
		"v1: v1beta1:theirs pods",
		"v1: v1beta1:ours pods",
		"v1:ours v1beta1:ours pods",
	}
	if diff := cmp.Diff(want, fc.moves(r, fc.isReady)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	live := fc.apiService(v1beta1)
	if live.UID != uid {
		t.Error("v1beta1 was deleted and created again")
	}
	if _, err := lifecycle.ReadPreviousOwner(live); err != nil {
		t.Errorf("the record of the takeover is lost: %v", err)
	}
	// Back to spec.existing, then restored.
	moveToExisting(fc)
	fc.reconcileUntil(r, func() bool { return fc.isReady() && len(fc.pods()) == 0 })
	moveToServing(fc)
	fc.reconcileUntil(r, func() bool { return fc.isReady() && fc.isRegistered(v1) })
	fc.delete(fc.backend())
	fc.reconcileUntil(r, fc.isGone)
	if diff := cmp.Diff(stockAPIService().Spec, fc.apiService(v1beta1).Spec); diff != "" {
		t.Errorf("(-stock +restored):\n%s", diff)
	}
}

// Each move waits for lifecycle.EndpointDelay from its own start, however often the APIService was
// moved before.
func TestEachMoveWaits(t *testing.T) {
	t.Parallel()
	fc := prepared(t, "existing", existingCluster)
	fc.change(onlyV1beta1)
	r := fc.live()
	moveToServing(fc)
	fc.reconcileUntil(r, fc.isReady)
	moveToExisting(fc)
	fc.reconcileUntil(r, func() bool { return fc.isReady() && len(fc.pods()) == 0 })
	moveToServing(fc)
	fc.reconcileUntil(r, fc.isReady)
	fc.clock.Step(time.Hour)
	moveToExisting(fc)
	mustReconcile(t, r)
	mustReconcile(t, r)
	fc.clock.Step(lifecycle.EndpointDelay - time.Second)
	mustReconcile(t, r)
	if got := fc.pointsToNow(v1beta1); got != ourService {
		t.Fatalf("v1beta1 points to %s before the delay is over", got)
	}
	fc.clock.Step(time.Second)
	mustReconcile(t, r)
	fc.wantPointsTo(v1beta1, metricsServer)
}

// Our pods serve until each kube-apiserver follows, and for a delay longer.
func TestMoveIsConfirmed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		setUp   func(*fakeCluster)
		message string
		delay   time.Duration
	}{
		"one lags": {
			setUp:   func(fc *fakeCluster) { fc.replicas[1].lags = true },
			message: "v1beta1.metrics.k8s.io points elsewhere, but kube-apiserver 192.0.2.2:6443 does not follow yet",
		},
		"one is down": {
			setUp:   func(fc *fakeCluster) { fc.replicas[1].down = true },
			message: "kube-apiserver 192.0.2.2:6443 cannot be asked, this waits 1m30s", delay: aggregator.DiscoveryDelay,
		},
		"none has an address": {
			setUp:   func(fc *fakeCluster) { fc.unreachable = true },
			message: "the kube-apiservers' own addresses cannot be read, this waits 1m30s", delay: aggregator.DiscoveryDelay,
		},
		"all follow": {
			setUp:   func(*fakeCluster) {},
			message: "points elsewhere in every kube-apiserver, this waits 10s", delay: aggregator.RoutingDelay,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "beside another implementation", besideOther)
			fc.change(onlyV1beta1)
			becomeReady(fc)
			replica := *fc.replicas[1]
			defer func() { *fc.replicas[1] = replica }()
			r := fc.live()
			moveToExisting(fc)
			fc.reconcileUntil(r, func() bool { return fc.pointsToNow(v1beta1) == metricsServer })
			tc.setUp(fc)
			// The delay starts with the first pass.
			mustReconcile(t, r)
			mustReconcile(t, r)
			if c := fc.condition(v1alpha1.ConditionReady); !strings.Contains(c.Message, tc.message) {
				t.Fatalf("Ready is %+v, want %q", c, tc.message)
			}
			if tc.delay == 0 {
				fc.clock.Step(time.Hour)
				mustReconcile(t, r)
				if !fc.deployed() {
					t.Fatal("the Deployment went although a kube-apiserver sends requests to it")
				}
				*fc.replicas[1] = replica
				fc.reconcileUntil(r, func() bool { return !fc.deployed() && fc.isReady() })
				return
			}
			fc.clock.Step(tc.delay - time.Second)
			mustReconcile(t, r)
			if !fc.deployed() {
				t.Fatal("the Deployment went before the delay was over")
			}
			fc.clock.Step(2 * time.Second)
			mustReconcile(t, r)
			if fc.deployed() {
				t.Error("the Deployment is still there after the delay")
			}
		})
	}
}

func (fc *fakeCluster) deployed() bool { return strings.Contains(fc.inventory(), "Deployment ") }

// A move that cannot finish removes nothing.
func TestMoveToServiceThatDoesNotServe(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		setUp  func(*fakeCluster)
		reason string
	}{
		"nobody answers": {
			setUp: func(fc *fakeCluster) {
				fc.other.failing["192.168.0.1:10250"], fc.other.failing["192.168.0.2:10250"] = errors.New("refused"), errors.New("refused")
			},
			reason: v1alpha1.ReasonProbeFailed,
		},
		"one does not answer":      {setUp: func(fc *fakeCluster) { fc.other.failing["192.168.0.1:10250"] = errors.New("refused") }, reason: v1alpha1.ReasonProbeFailed},
		"nobody is there":          {setUp: func(fc *fakeCluster) { fc.scaleMetricsServer(0) }, reason: v1alpha1.ReasonNoReadyEndpoint},
		"it serves no metrics":     {setUp: func(fc *fakeCluster) { fc.scaleMetricsServer(2) }, reason: v1alpha1.ReasonVersionNotServed},
		"its Service is not there": {setUp: func(fc *fakeCluster) { fc.delete(otherService(fc)) }, reason: v1alpha1.ReasonServiceMissing},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fc := prepared(t, "beside another implementation", besideOther)
			r := fc.live()
			tc.setUp(fc)
			moveToExisting(fc)
			fc.reconcileRounds(r, 10)
			fc.wantRegistered("v1", "v1beta1")
			if len(fc.pods()) != 2 || fc.violation != "" {
				t.Errorf("%d pods, %s", len(fc.pods()), fc.violation)
			}
			fc.wantCondition(v1alpha1.ConditionServingReady, "", tc.reason)
			moveToServing(fc)
			fc.reconcileUntil(r, fc.isReady)
		})
	}
}

// The certificate of pods that are gone must not trigger an alert.
func TestCertificateSeriesEnd(t *testing.T) {
	fc := newFakeCluster(t, newBackend())
	besideOther(fc)
	r := fc.reconciler()
	mustReconcile(t, r)
	moveToExisting(fc)
	fc.reconcileUntil(r, func() bool { return fc.isReady() && !fc.deployed() && len(fc.pods()) == 0 })
	mustReconcile(t, r)
	if certificateGauge.DeleteLabelValues(backendName) {
		t.Error("there is a series of the certificate of pods that are gone")
	}
}
