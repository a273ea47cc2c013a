// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// wantCondition checks a condition's status, its reason unless that is empty, and that
// its message contains all parts.
func (fc *fakeCluster) wantCondition(kind string, status metav1.ConditionStatus, reason string, parts ...string) {
	fc.t.Helper()
	c := fc.condition(kind)
	if status != "" && c.Status != status || reason != "" && c.Reason != reason {
		fc.t.Errorf("%s is %+v, want %s %s", kind, c, status, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			fc.t.Errorf("%s has the message %q, want %q in it", kind, c.Message, part)
		}
	}
}

// isStalledBy reports whether the backend is stalled for the reason.
func (fc *fakeCluster) isStalledBy(reason string) bool {
	return fc.condition(v1alpha1.ConditionStalled).Reason == reason
}

// wantRegistered checks which versions are registered, sorted by name.
func (fc *fakeCluster) wantRegistered(versions ...string) {
	fc.t.Helper()
	if diff := cmp.Diff(versions, fc.registeredVersions()); diff != "" {
		fc.t.Errorf("registered versions (-want +got):\n%s", diff)
	}
}

// wantPointsTo checks to which Service the version's APIService points; "" if there is no
// APIService.
func (fc *fakeCluster) wantPointsTo(gv schema.GroupVersion, service string) {
	fc.t.Helper()
	if got := fc.pointsToNow(gv); got != service {
		fc.t.Errorf("%s points to %q, want %q", gv, got, service)
	}
}

// wantEvent checks that an event with all the parts was recorded, and consumes the events
// up to it.
func wantEvent(t *testing.T, r *Reconciler, parts ...string) {
	t.Helper()
	recorder := r.Events.(*events.FakeRecorder)
	for {
		select {
		case e := <-recorder.Events:
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(e, part) }) {
				return
			}
		default:
			t.Errorf("no event with %q", parts)
			return
		}
	}
}
