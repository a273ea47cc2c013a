// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// TestAdoptionPolicies checks what each policy does with metrics-server's APIService.
func TestAdoptionPolicies(t *testing.T) {
	t.Parallel()
	said := func(status apiregistrationv1.ConditionStatus) []apiregistrationv1.APIServiceCondition {
		return []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status}}
	}
	cases := map[string]struct {
		policy  v1alpha1.AdoptionPolicy
		said    []apiregistrationv1.APIServiceCondition
		adopted bool
		// message is that of Stalled.
		message string
	}{
		"Refuse, unavailable":        {policy: v1alpha1.AdoptionRefuse, said: said("False"), message: "stays theirs"},
		"default":                    {said: said("True"), message: "after kubectl metrics-backend preflight, set spec.resourceMetrics.adoption"},
		"IfUnavailable, available":   {policy: v1alpha1.AdoptionIfUnavailable, said: said("True"), message: "set that to Always to take it over now"},
		"IfUnavailable, not checked": {policy: v1alpha1.AdoptionIfUnavailable, message: "once kube-apiserver has reported it unavailable for 1m0s"},
		"IfUnavailable, unavailable": {policy: v1alpha1.AdoptionIfUnavailable, said: said("False"), adopted: true},
		"Always, available":          {policy: v1alpha1.AdoptionAlways, said: said("True"), adopted: true},
	}
	for name, tc := range sampled(t, cases) {
		t.Run(name, func(t *testing.T) {
			fc := newFakeCluster(t, newBackend(adopting(tc.policy)))
			stockCluster(fc)
			other := fc.apiService(v1beta1)
			other.Status.Conditions = tc.said
			fc.updateStatus(other)
			r := fc.live()
			fc.reconcileRounds(r, 30)
			if adopted := fc.pointsToNow(v1beta1) == ourService; adopted != tc.adopted {
				t.Errorf("adopted %t, want %t\n%s", adopted, tc.adopted, fc.show())
			}
			if registered := fc.isRegistered(v1); registered && !tc.adopted {
				t.Errorf("v1 is registered beside v1beta1 of metrics-server, and clients prefer it:\n%s", fc.show())
			}
			if tc.adopted {
				if stalled := fc.condition(v1alpha1.ConditionStalled); stalled.Type != "" {
					t.Errorf("Stalled is %+v", stalled)
				}
				fc.reconcileThroughTakeover(r)
				return
			}
			fc.wantCondition(v1alpha1.ConditionStalled, "", v1alpha1.ReasonNotOwned, tc.message, "Service kube-system/metrics-server")
			fc.wantCondition(v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNotOwned, "v1beta1.metrics.k8s.io is not served by this backend: see Stalled")
		})
	}
}

// IfUnavailable takes over after a minute, not after one failed check.
func TestAdoptionIfUnavailableWaits(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(adopting(v1alpha1.AdoptionIfUnavailable)))
	stockCluster(fc)
	r := fc.live()
	fc.reconcileUntil(r, func() bool { return fc.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue })
	fc.clock.Step(time.Hour)
	other := fc.apiService(v1beta1)
	other.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: "False", LastTransitionTime: metav1.NewTime(fc.clock.Now()),
	}}
	fc.updateStatus(other)
	fc.clock.Step(lifecycle.AdoptionGrace - time.Second)
	for range 3 {
		result, err := reconcileOnce(t, r)
		if err != nil || result.RequeueAfter > time.Second {
			t.Errorf("looks again after %s, error %v", result.RequeueAfter, err)
		}
	}
	// Only then lifecycle.EndpointDelay starts.
	fc.clock.Step(time.Second)
	mustReconcile(t, r)
	fc.clock.Step(lifecycle.EndpointDelay - time.Second)
	mustReconcile(t, r)
	if got := fc.pointsToNow(v1beta1); got != metricsServer {
		t.Fatalf("v1beta1 points to %s", got)
	}
	fc.clock.Step(time.Second)
	mustReconcile(t, r) // registers the canary API, which answers at the next pass
	mustReconcile(t, r)
	fc.wantPointsTo(v1beta1, ourService)
}

// reconcileThroughTakeover reconciles until the backend is ready, with an aggregator that
// reports the APIServices available.
func (fc *fakeCluster) reconcileThroughTakeover(r *Reconciler) {
	fc.t.Helper()
	service := fc.apiService(v1beta1)
	fc.setAvailable(service, apiregistrationv1.ConditionTrue, "Passed")
	fc.reconcileUntil(r, fc.isReady)
}

// One write points the APIService at our pods, with caBundle, label and previous owner;
// v1 is registered after it.
func TestAdoptionInOneWrite(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(adopting(v1alpha1.AdoptionAlways)))
	stockCluster(fc)
	other := fc.apiService(v1beta1)
	var writes []string
	r := fc.live(intercepted(func(c call, make func() error) error {
		before := fc.pointsToNow(v1beta1)
		err := make()
		if c.write && strings.Contains(c.name, "APIService") && fc.pointsToNow(v1beta1) != before {
			writes = append(writes, c.name+": v1beta1 from "+before+" to "+fc.pointsToNow(v1beta1)+", v1 to "+fc.pointsToNow(v1))
		}
		return err
	}))
	fc.reconcileUntil(r, func() bool { return len(writes) > 0 })
	const applied = "apply *v1.APIServiceApplyConfiguration: "
	want := []string{applied + "v1beta1 from " + metricsServer + " to " + ourService + ", v1 to "}
	if diff := cmp.Diff(want, writes[:1]); diff != "" {
		t.Fatalf("writes of APIServices (-want +got):\n%s", diff)
	}
	ours := fc.apiService(v1beta1)
	if ours.UID != other.UID {
		t.Error("it was deleted and created again")
	}
	if ours.Spec.InsecureSkipTLSVerify || string(ours.Spec.CABundle) == theirCA || ours.Labels[v1alpha1.LabelBackend] != backendName || ours.Labels["k8s-app"] != "metrics-server" {
		t.Errorf("after the takeover: %+v", ours)
	}
	// Who applies it may point it back by its Service alone.
	if theirs, added := lifecycle.CutAuthority(ours.Spec.CABundle, backendName); string(theirs) != theirCA || added.IsZero() {
		t.Errorf("the caBundle after the takeover: %s", ours.Spec.CABundle)
	}
	var record v1alpha1.PreviousOwner
	fc.must(json.Unmarshal([]byte(ours.Annotations[v1alpha1.AnnotationPreviousOwner]), &record))
	labels := map[string]*string{}
	for key := range r.newState(fc.backend()).serving.SharedLabels() {
		labels[key] = nil
	}
	// The previous owner uses labels that we set too.
	labels["app.kubernetes.io/managed-by"], labels["app.kubernetes.io/name"] = ptr.To("Helm"), ptr.To("metrics-server")
	wantRecord := v1alpha1.PreviousOwner{
		Service:  v1alpha1.ExistingService{Namespace: "kube-system", Name: "metrics-server", Port: ptr.To[int32](443)},
		CABundle: []byte(theirCA), GroupPriorityMinimum: 100, VersionPriority: 100, Labels: labels,
	}
	if diff := cmp.Diff(wantRecord, record); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	fc.reconcileUntil(r, fc.isReady)
	if !fc.isRegistered(v1) {
		t.Error("v1 is not registered")
	}
	if message := stateMessage(fc, "v1beta1.metrics.k8s.io"); !strings.Contains(message, "taken over from Service kube-system/metrics-server") {
		t.Errorf("the status says %q", message)
	}
	wantEvent(t, r, "VersionAdopted", "took APIService v1beta1.metrics.k8s.io over from Service kube-system/metrics-server")
	kept := fc.apiService(v1beta1).Annotations[v1alpha1.AnnotationPreviousOwner]
	if kept != ours.Annotations[v1alpha1.AnnotationPreviousOwner] {
		t.Errorf("the record changed to %s", kept)
	}
}

func stateMessage(fc *fakeCluster, name string) string {
	for _, s := range fc.backend().Status.APIServices {
		if s.Name == name {
			return s.Message
		}
	}
	return ""
}

// The recorded owner is the one at the moment of the write.
func TestAdoptionRacesWithItsOwner(t *testing.T) {
	t.Parallel()
	fc := newFakeCluster(t, newBackend(adopting(v1alpha1.AdoptionAlways)))
	stockCluster(fc)
	raced := false
	r := fc.live(interceptor.Funcs{
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			body, err := json.Marshal(o)
			fc.must(err)
			if !raced && strings.Contains(string(body), v1alpha1.AnnotationPreviousOwner) {
				raced = true
				fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) { s.Spec.VersionPriority = 200 })
			}
			return c.Apply(ctx, o, opts...)
		},
	})
	fc.reconcileUntil(r, func() bool { return fc.pointsToNow(v1beta1) == ourService })
	if !raced {
		t.Fatal("not what this test is about")
	}
	record, err := lifecycle.ReadPreviousOwner(fc.apiService(v1beta1))
	fc.must(err)
	if record.VersionPriority != 200 {
		t.Errorf("recorded versionPriority %d, it was 200 at the takeover", record.VersionPriority)
	}
}
