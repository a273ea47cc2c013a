// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/debounce"
)

var (
	testNow = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	testGV  = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
)

// version returns a version that the spec names, which two pods serve, and which has no APIService.
func version(changes ...func(*Version)) *Version {
	serving := manifests.Serving{Backend: "cluster", Namespace: "system"}
	pod := Server{Name: "pod a", Ready: true, Current: true, Template: "new", Serves: map[schema.GroupVersion]bool{testGV: true}}
	v := &Version{
		GV: testGV, Now: testNow, Section: "spec.resourceMetrics", Adoption: v1alpha1.AdoptionRefuse, Wanted: true,
		Identity: Identity{Serving: serving, Target: serving.Target([]byte("ca")), Deploys: true}, Contest: &Contest{}, Known: sets.New[Need](),
		Servers: Servers{pod, pod}, Rollout: Rollout{Finished: true}, Served: time.Hour, Asked: true,
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

// pointing gives the version an APIService, of the MetricsBackend with that name or of nobody's.
func pointing(namespace, name, holder string) func(*Version) {
	return func(v *Version) {
		v.Live = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: v.Name(), Labels: map[string]string{}, Annotations: map[string]string{}}}
		v.Live.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: ptr.To(v.Identity.Target.Port)}
		v.Live.Spec.Group, v.Live.Spec.Version, v.Live.Spec.CABundle = testGV.Group, testGV.Version, v.Identity.Target.CABundle
		if holder != "" {
			v.Live.Labels[v1alpha1.LabelBackend] = holder
		}
	}
}

var (
	ours       = pointing("system", "metrics-serving-cluster", "cluster")
	oursAway   = pointing("kube-system", "existing", "cluster")
	theirs     = pointing("kube-system", "metrics-server", "")
	another    = pointing("system", "metrics-serving-another", "another")
	ofExternal = func(v *Version) {
		v.GV = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}
		for i := range v.Servers {
			v.Servers[i].Serves = map[schema.GroupVersion]bool{v.GV: true}
		}
	}
	adoptsAlways = func(v *Version) { v.Adoption = v1alpha1.AdoptionAlways }
	trial        = func(v *Version) { v.Live.Annotations[v1alpha1.AnnotationUnverified] = "true" }
	applied      = func(v *Version) { v.Applied = true }
	blocked      = func(v *Version) { v.Blocked = true }
	paused       = func(v *Version) {
		v.Paused = Pause{Reason: v1alpha1.ReasonAdoptionReverted, Message: "failed before", Left: time.Minute}
	}
	shared     = func(v *Version) { v.Shared = true }
	retires    = func(v *Version) { v.Retires = true; v.Known.Insert(NeedSuccessor) }
	unwanted   = func(v *Version) { v.Wanted = false }
	noneServes = func(v *Version) {
		for i := range v.Servers {
			v.Servers[i].Serves = map[schema.GroupVersion]bool{}
		}
	}
	unanswered = func(v *Version) {
		v.Unanswered = debounce.Streak{Count: RetireProbes, Elapsed: RetireGrace}
		for i := range v.Servers {
			v.Servers[i].Failing = map[schema.GroupVersion]string{testGV: "HTTP 500"}
		}
	}
	contested = func(v *Version) {
		writtenBy("helm")(v)
		v.Identity.Target.CABundle = []byte("a new one")
		for range ContestLimit {
			v.Contest.Count("helm", testNow)
		}
	}
	failing = func(v *Version) { v.Failing = debounce.Streak{Count: 3, Elapsed: 6 * time.Second} }
)

// authorityAdded has our authority in the caBundle for that long.
func authorityAdded(before time.Duration) func(*Version) {
	return func(v *Version) {
		v.Live.Spec.CABundle = WithAuthority([]byte("theirs"), v.Identity.Target.CABundle, "cluster", testNow.Add(-before))
	}
}

func recorded(service string) func(*Version) {
	return func(v *Version) {
		body, _ := json.Marshal(PreviousOwner{Service: v1alpha1.ExistingService{Namespace: "kube-system", Name: service}, GroupPriorityMinimum: 100, VersionPriority: 100})
		v.Live.Annotations[v1alpha1.AnnotationPreviousOwner] = string(body)
	}
}

// writtenBy has the Service written by a manager, and nothing by us.
func writtenBy(manager string) func(*Version) {
	return func(v *Version) {
		v.Live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:service":{"f:namespace":{},"f:name":{}}}}`)}}
	}
}

// Each row of the table is decided by at least one case, which names what its row observed.
func TestDecide(t *testing.T) {
	known := func(need Need, set func(*Version)) func(*Version) {
		return func(v *Version) { v.Known.Insert(need); set(v) }
	}
	holder := func(h Holder) func(*Version) { return known(NeedHolder, func(v *Version) { v.Holder = h }) }
	reach := func(reached bool) func(*Version) {
		return known(NeedReach, func(v *Version) { v.Reach.Reached = reached })
	}
	consumers := func(active bool) func(*Version) {
		return known(NeedConsumers, func(v *Version) { v.Consumers = active })
	}
	previousReady := func(ready bool) func(*Version) {
		return known(NeedPreviousEndpoints, func(v *Version) { v.PreviousReady = ready })
	}
	compared := func(why string, lost ...string) func(*Version) {
		return known(NeedComparison, func(v *Version) { v.Uncompared, v.Differences.Lost = why, lost })
	}
	discovery := func(why string) func(*Version) { return known(NeedDiscovery, func(v *Version) { v.Discovery = why }) }
	routing := func(why string) func(*Version) { return known(NeedRouting, func(v *Version) { v.Routing = why }) }
	successor := known(NeedSuccessor, func(v *Version) { v.Successor = "another" })
	previous := func(p PreviousService) func(*Version) {
		return known(NeedPreviousOwner, func(v *Version) { v.Previous = p })
	}
	otherTarget := func(insecure bool) func(*Version) {
		return func(v *Version) {
			v.Identity.Deploys = false
			v.Identity.Target = manifests.Target{Namespace: "kube-system", Name: "existing", Port: 443, InsecureSkipTLSVerify: insecure}
		}
	}
	tests := []struct {
		on      string
		changes []func(*Version)
		needs   Need
	}{
		{on: "the Service that it points to is gone", changes: []func(*Version){ours, func(v *Version) { v.Gone = "it is gone" }}},
		{changes: []func(*Version){ours, unwanted}, needs: NeedConsumers},
		{on: "and clients use it", changes: []func(*Version){ours, unwanted, consumers(true)}},
		{on: "the spec does not name the version", changes: []func(*Version){ours, unwanted, consumers(false)}},
		{on: "a server behind the APIService does not serve", changes: []func(*Version){ours, noneServes}},
		{on: "a server behind the APIService does not serve", changes: []func(*Version){otherTarget(true), oursAway, noneServes}},
		{on: "is to move, the target does not serve", changes: []func(*Version){oursAway, noneServes, func(v *Version) { v.OtherServed = true }}},
		{on: "not all servers serve", changes: []func(*Version){oursAway, noneServes}},
		{on: "each ready pod has failed to answer", changes: []func(*Version){ours, unanswered, func(v *Version) { v.Unanswered.Elapsed = 10 * time.Minute }}},
		{on: "each ready pod has failed to answer", changes: []func(*Version){ours, unanswered, func(v *Version) { v.Alternative = true }}},
		{on: "has not been compared", changes: []func(*Version){ours, unanswered}},
		{on: "ready for less than 10 s", changes: []func(*Version){ours, unanswered, otherTarget(true), func(v *Version) {
			// Our pods failed until spec.existing was set, whose endpoints are only asked for their discovery.
			v.Unanswered.Elapsed, v.Served = time.Hour, 0
			for i := range v.Servers {
				v.Servers[i].Failing = nil
			}
		}}},
		{on: "was registered beside one of someone else", changes: []func(*Version){ours, trial, failing, shared}},
		{on: "or is contested", changes: []func(*Version){ours, contested, failing}},
		{changes: []func(*Version){ours, contested, failing, recorded("metrics-server")}, needs: NeedPreviousEndpoints},
		{changes: []func(*Version){ours, trial, failing, recorded("metrics-server")}, needs: NeedPreviousEndpoints},
		{on: "the previous owner has a ready endpoint", changes: []func(*Version){ours, trial, failing, recorded("metrics-server"), previousReady(true)}},
		{on: "not yet succeeded for 15 s", changes: []func(*Version){ours, trial, applied, failing, recorded("metrics-server"), previousReady(false)}},
		{on: "an earlier step has found", changes: []func(*Version){func(v *Version) { v.Conflict = "older" }}},
		{on: "lacks our label", changes: []func(*Version){pointing("system", "metrics-serving-cluster", "")}},
		{changes: []func(*Version){another}, needs: NeedHolder},
		{on: "which does not exist, or is not being deleted", changes: []func(*Version){another, holder(HolderMissing)}},
		{on: "which does not exist, or is not being deleted", changes: []func(*Version){another, holder(HolderExists)}},
		{on: "the APIService is ours, or another MetricsBackend's", changes: []func(*Version){another, holder(HolderDeleting)}},
		{on: "adoption is Refuse", changes: []func(*Version){another, holder(HolderDeleting), recorded("metrics-server")}},
		{on: "adoption is Refuse", changes: []func(*Version){pointing("kube-system", "metrics-server", "another"), writtenBy("helm"), holder(HolderDeleting)}},
		{on: "kube-apiserver serves the version itself", changes: []func(*Version){oursAway, func(v *Version) { v.Live.Spec.Service = nil }}},
		{on: "may not be taken over now", changes: []func(*Version){theirs, paused}},
		{on: "writes it back at any time", changes: []func(*Version){theirs, adoptsAlways, func(v *Version) { v.Live.Labels["addonmanager.kubernetes.io/mode"] = "Reconcile" }}},
		{on: "it has not been unavailable for a minute", changes: []func(*Version){theirs, func(v *Version) { v.Adoption = v1alpha1.AdoptionIfUnavailable }}},
		{on: "adoption is Refuse", changes: []func(*Version){theirs}},
		{on: "is stalled, and the APIService points to the target", changes: []func(*Version){ours, blocked}},
		{on: "spec.existing does not serve", changes: []func(*Version){func(v *Version) { v.LeftOut = "not served" }}},
		{on: "the MetricsBackend is stalled", changes: []func(*Version){blocked}},
		{on: "not all servers serve", changes: []func(*Version){noneServes}},
		{on: "three times within six hours", changes: []func(*Version){oursAway, contested}},
		{on: "has a caBundle", changes: []func(*Version){ours, func(v *Version) { v.Identity.Target.InsecureSkipTLSVerify = true }}},
		{on: "has not been compared", changes: []func(*Version){ours}},
		{on: "not yet succeeded for 15 s", changes: []func(*Version){ours, trial, applied}},
		{on: "not yet succeeded for 15 s", changes: []func(*Version){ours, trial, applied, func(v *Version) { v.Succeeding = debounce.Streak{Count: 1, Elapsed: time.Hour} }}},
		{on: "requests have succeeded for 15 s", changes: []func(*Version){ours, trial, contested, func(v *Version) { v.Succeeding = debounce.Streak{Count: 3, Elapsed: TrialTime} }}},
		{on: "requests have succeeded for 15 s", changes: []func(*Version){ours, trial, applied, func(v *Version) { v.Succeeding = debounce.Streak{Count: 3, Elapsed: TrialTime} }}},
		{on: "it is as we want it", changes: []func(*Version){ours, applied}},
		{on: "someone else's implementation, and a takeover has failed", changes: []func(*Version){theirs, adoptsAlways, paused}},
		{on: "ready for less than 10 s", changes: []func(*Version){oursAway, func(v *Version) { v.Served = time.Second }}},
		{changes: []func(*Version){ofExternal, theirs, adoptsAlways}, needs: NeedComparison},
		{on: "autoscalers read metrics there", changes: []func(*Version){ofExternal, theirs, adoptsAlways, compared("", "queue")}},
		{on: "autoscalers read metrics there", changes: []func(*Version){ofExternal, theirs, adoptsAlways, compared("no answer")}},
		{changes: []func(*Version){ofExternal, theirs, adoptsAlways, compared("")}, needs: NeedReach},
		{changes: []func(*Version){ofExternal, theirs, adoptsAlways, func(v *Version) { v.DespiteLost = true }}, needs: NeedReach},
		{changes: []func(*Version){theirs, adoptsAlways}, needs: NeedReach},
		{on: "not every kube-apiserver has reached our pods", changes: []func(*Version){theirs, adoptsAlways, reach(false)}},
		{on: "has taken our authority out", changes: []func(*Version){theirs, adoptsAlways, reach(true), func(v *Version) { v.Contest.AuthorityAdded = true }}},
		{on: "has taken our authority out", changes: []func(*Version){theirs, adoptsAlways, reach(true), func(v *Version) { v.Contest.AuthorityRemoved = testNow }}},
		{on: "has a caBundle without our authority", changes: []func(*Version){theirs, adoptsAlways, reach(true)}},
		{on: "has a caBundle without our authority", changes: []func(*Version){theirs, adoptsAlways, reach(true), func(v *Version) {
			v.Contest.AuthorityRemoved = testNow.Add(-ContestWindow) // it is tried once more
		}}},
		{on: "for less than a minute", changes: []func(*Version){theirs, adoptsAlways, reach(true), authorityAdded(59 * time.Second)}},
		{on: "the APIService is someone else's, or was", changes: []func(*Version){theirs, adoptsAlways, reach(true), authorityAdded(time.Minute)}},
		{on: "another version moves first", changes: []func(*Version){func(v *Version) { v.OtherMoves = "v1beta1.metrics.k8s.io" }}},
		{on: "another version of the group is on trial", changes: []func(*Version){func(v *Version) { v.OtherTrial = "v1beta1.metrics.k8s.io" }}},
		{on: "someone else's, and may not be taken over", changes: []func(*Version){shared, func(v *Version) { v.OtherNotOwned = "refused" }}},
		{on: "or it was contested, and that has failed before", changes: []func(*Version){shared, paused}},
		{on: "or it was contested, and that has failed before", changes: []func(*Version){func(v *Version) {
			v.Paused = Pause{Reason: v1alpha1.ReasonContested, Message: "APIService v1.metrics.k8s.io is removed again"}
		}}},
		{on: "nobody else serves the group", changes: []func(*Version){func(v *Version) {
			v.Paused = Pause{Reason: v1alpha1.ReasonContested, Message: "APIService v1beta1.metrics.k8s.io is removed again"}
		}}},
		{changes: []func(*Version){shared}, needs: NeedReach},
		{on: "another version of the group is someone else's, and not every", changes: []func(*Version){shared, reach(false)}},
		{on: "another version of the group is someone else's", changes: []func(*Version){shared, reach(true)}},
		{on: "nobody else serves the group"},

		{changes: []func(*Version){ours, func(v *Version) { v.Retires = true }}, needs: NeedSuccessor},
		{changes: []func(*Version){ours, recorded("metrics-server"), func(v *Version) { v.Retires = true }}, needs: NeedSuccessor},
		{on: "is ready to take the version over", changes: []func(*Version){ours, retires, successor}},
		{changes: []func(*Version){retires}, needs: NeedDiscovery},
		{on: "a kube-apiserver lists the version", changes: []func(*Version){retires, discovery("listed")}},
		{on: "there is no APIService", changes: []func(*Version){retires, discovery("")}},
		{changes: []func(*Version){theirs, retires}, needs: NeedRouting},
		{on: "may still route to our pods", changes: []func(*Version){theirs, retires, routing("lags")}},
		{on: "the APIService is not ours", changes: []func(*Version){theirs, retires, routing("")}},
		{on: "a finalizer holds", changes: []func(*Version){ours, retires, recorded("metrics-server"), func(v *Version) { v.Deleted = true }}},
		{on: "has pointed the APIService to another", changes: []func(*Version){oursAway, retires, recorded("metrics-server"), writtenBy("helm")}},
		{on: "has no record of a previous owner", changes: []func(*Version){ours, retires}},
		{on: "the record cannot be used", changes: []func(*Version){ours, retires, func(v *Version) { v.Live.Annotations[v1alpha1.AnnotationPreviousOwner] = "{" }}},
		{on: "or kube-apiserver forbids", changes: []func(*Version){ours, retires, recorded("metrics-server"), func(v *Version) { v.Refused = errors.New("forbidden") }}},
		{changes: []func(*Version){ours, retires, recorded("metrics-server")}, needs: NeedPreviousOwner},
		{on: "the previous owner serves", changes: []func(*Version){ours, retires, recorded("metrics-server"), previous(PreviousService{})}},
		{on: "failed for less than 30 s", changes: []func(*Version){ours, retires, recorded("metrics-server"), previous(PreviousService{Problem: "no endpoint", Transient: true})}},
		{on: "the previous owner fails", changes: []func(*Version){ours, retires, recorded("metrics-server"), previous(PreviousService{Problem: "gone"})}},
	}
	taken := map[string]bool{}
	for _, test := range tests {
		v := version(test.changes...)
		state, d := v.state(), Decide(v)
		if test.needs != "" || d.Needs != "" {
			if d.Needs != test.needs {
				t.Errorf("%s, %q: needs %q, want %q", state, test.on, d.Needs, test.needs)
			}
			continue
		}
		i := slices.IndexFunc(transitions, func(t Transition) bool {
			return slices.Contains(t.From, state) && t.when(v) && (t.holds == nil || t.holds(v))
		})
		if i < 0 || !strings.Contains(transitions[i].On, test.on) {
			t.Errorf("%s, want the row %q: %+v", state, test.on, d)
			continue
		}
		taken[transitions[i].On] = true
		// A decision does one thing, or waits for one; the rows that end there do neither.
		if d.Action != "" && d.Waits != "" || d.Reason != "" && d.Waits == "" {
			t.Errorf("%s, %q: %+v", state, test.on, d)
		}
	}
	for _, row := range transitions {
		if !taken[row.On] {
			t.Errorf("no case takes the row %v: %s", row.From, row.On)
		}
	}
}
