// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// PreviousOwnerGrace is how long the previous owner of an APIService that is handed back may
// fail, since its pods may be restarting.
const PreviousOwnerGrace = 30 * time.Second

// retiring are the transitions of a version that is removed from discovery: the intent is in the
// status, or the MetricsBackend is being deleted.
var retiring = []Transition{
	{
		From: []State{Retiring}, On: "another field manager has pointed the APIService to another Service",
		when: func(v *Version) bool { return v.isOurs() && !v.isHeld() && v.isRepointed() }, Do: Disown, To: Retiring,
	},
	{
		From: []State{Retiring, Restoring}, On: "another MetricsBackend is ready to take the version over, less than 30 s after the deletion of this one",
		when: (*Version).isOurs, needs: NeedSuccessor, holds: func(v *Version) bool { return v.Successor != "" },
		text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is about to be taken over by MetricsBackend %q", v.Name(), v.Successor)
		},
	},
	{
		From: []State{Retiring}, On: "there is no APIService, and a kube-apiserver lists the version in its discovery, or cannot be asked for less than 90 s",
		when: (*Version).isAbsent, needs: NeedDiscovery, holds: func(v *Version) bool { return v.Discovery != "" },
		text: func(v *Version) string { return v.Discovery },
	},
	{From: []State{Retiring}, On: "there is no APIService", when: (*Version).isAbsent, To: Gone},
	{
		From: []State{Retiring}, On: "the APIService is not ours, and a kube-apiserver may still route to our pods",
		when: (*Version).isOthers, needs: NeedRouting, holds: func(v *Version) bool { return v.Routing != "" },
		text: func(v *Version) string { return v.Routing },
	},
	{From: []State{Retiring}, On: "the APIService is not ours", when: (*Version).isOthers, To: Gone},
	{
		From: []State{Retiring}, On: "a finalizer holds the deleted APIService",
		when: (*Version).isHeld, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s still exists: something holds it with a finalizer", v.Name())
		},
	},
	{From: []State{Retiring}, On: "the APIService is ours, and has no record of a previous owner", when: always, Do: Delete},

	{
		From: []State{Restoring}, On: "the record cannot be used, or kube-apiserver forbids to restore it",
		when: func(v *Version) bool { return v.recordProblem() != nil }, Do: Delete, Event: "HandBackImpossible", To: Retiring,
		text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is deleted, not handed back: %v", v.Name(), v.recordProblem())
		},
	},
	{
		From: []State{Restoring}, On: "the previous owner serves the version",
		when: always, needs: NeedPreviousOwner, holds: func(v *Version) bool { return v.Previous.Problem == "" }, Do: HandBack, To: Retiring,
	},
	{
		From: []State{Restoring}, On: "the previous owner has failed for less than 30 s",
		when: func(v *Version) bool { return v.Previous.Transient && v.Previous.Failing < PreviousOwnerGrace },
		text: func(v *Version) string {
			return fmt.Sprintf("APIService %s still exists: this waits up to %s for Service %s, to which it is handed back: %s",
				v.Name(), PreviousOwnerGrace, v.Recorded().Target(), v.Previous.Problem)
		},
	},
	{
		From: []State{Restoring}, On: "the previous owner fails",
		when: always, Do: Delete, Event: "PreviousOwnerSilent", To: Retiring, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is deleted, not handed back to Service %s: %s", v.Name(), v.Recorded().Target(), v.Previous.Problem)
		},
	},
}

func always(*Version) bool { return true }

func (v *Version) isAbsent() bool { return v.Live == nil }

func (v *Version) isOurs() bool { return v.Live != nil && v.Identity.Owns(v.Live) }

func (v *Version) isOthers() bool { return !v.isAbsent() && !v.isOurs() }

func (v *Version) isHeld() bool { return v.Deleted || v.Live.DeletionTimestamp != nil }

func (v *Version) isRepointed() bool { return v.Identity.IsRepointed(v.Live) }

// IsRecorded reports whether the APIService has a record of a previous owner.
func (v *Version) IsRecorded() bool {
	return v.Live != nil && metav1.HasAnnotation(v.Live.ObjectMeta, v1alpha1.AnnotationPreviousOwner)
}

// recordProblem returns why an APIService cannot be handed back to the recorded owner, or nil.
func (v *Version) recordProblem() error {
	previous, err := ReadPreviousOwner(v.Live)
	switch {
	case err != nil:
		return err
	case previous.Service.Namespace == v.Identity.Serving.Namespace && previous.Service.Name == v.Identity.Serving.Name():
		// It would point to the pods that are being removed.
		return fmt.Errorf("annotation %s names Service %s, which is this MetricsBackend's own", v1alpha1.AnnotationPreviousOwner, previous.Target())
	}
	return v.Refused
}

// Recorded returns the recorded owner, which is valid.
func (v *Version) Recorded() *PreviousOwner {
	previous, _ := ReadPreviousOwner(v.Live)
	return previous
}

// A version is retired when no ready pod answers its requests (5xx, no answer in
// time, or a malformed one; 404 counts as not served) for RetireGrace and in
// RetireProbes probes in a row.
const (
	RetireGrace  = time.Minute
	RetireProbes = 4
	// RetireGraceAlone replaces RetireGrace while clients have no other version to use.
	RetireGraceAlone = 10 * time.Minute
)

// trialRequests is how many requests to an APIService on trial must succeed in a row before it is
// final, or fail before it is reverted.
const trialRequests = 3

// leaving are the transitions of a registered version that is to leave discovery. Retire stores the
// intent; the deletion follows in the next reconciliation.
var leaving = []Transition{
	{
		From: existing, On: "the APIService is ours, and the Service that it points to is gone, or its namespace",
		when: func(v *Version) bool { return v.isOurs() && v.Gone != "" }, Do: Retire, To: Retiring, text: func(v *Version) string { return v.Gone },
	},
	{
		From: existing, On: "a server behind the APIService does not serve the version, and is ready, or of the newest revision",
		when: func(v *Version) bool { return v.isOurs() && v.lacking() != "" }, Do: Retire, To: Retiring,
		text: func(v *Version) string { return v.lacking() + " does not serve it" },
	},
	{
		From: existing, On: "the APIService is ours and is to move, the target does not serve the version, and serves another one of the spec",
		when: (*Version).cannotMove, Do: Retire, To: Retiring, text: func(v *Version) string { return v.Servers.Lacking(v.GV)[0] + " does not serve it" },
	},
	{
		From: existing, On: "each ready pod has failed to answer the version's requests for a minute, or for ten without another version to use",
		when: (*Version).IsUnanswered, Do: Retire, To: Retiring, text: func(v *Version) string {
			failing, _ := v.Servers.ByRequests(v.GV)
			return "no ready pod answers its requests: " + failing.DescribeFailing(v.GV)
		},
	},
	{
		From: existing, On: "the spec does not name the version, and clients use it, or not every pod has said who does",
		when: (*Version).isUnwanted, needs: NeedConsumers, holds: func(v *Version) bool { return v.Consumers }, To: Kept,
	},
	{From: existing, On: "the spec does not name the version", when: (*Version).isUnwanted, Do: Retire, To: Retiring, text: func(*Version) string { return "no longer desired" }},
	{
		From: registered, On: "three requests in a row have failed over six seconds, and the version was registered beside one of someone else, or is contested",
		when: func(v *Version) bool { return v.failsTrial() && !v.IsRecorded() && (v.Shared || v.isContested()) }, Do: Retire, To: Retiring,
		text: func(*Version) string { return "requests through kube-apiserver fail" },
	},
	{
		From: registered, On: "three requests in a row have failed over six seconds, and the previous owner has a ready endpoint (with IfUnavailable, one that answers)",
		when: func(v *Version) bool { return v.failsTrial() && v.IsRecorded() }, needs: NeedPreviousEndpoints,
		holds: func(v *Version) bool { return v.PreviousReady }, Do: Revert, To: Pending,
	},
}

// isServing reports whether the APIService points to the servers.
func (v *Version) isServing() bool {
	if v.Identity.Deploys {
		return v.Identity.PointsToPods(v.Live)
	}
	return v.Identity.PointsToTarget(v.Live)
}

// isUnwanted reports whether an APIService of ours is of a version that the spec does not name.
func (v *Version) isUnwanted() bool { return v.isOurs() && !v.Wanted }

// lacking names a server behind the APIService that does not serve the version, or returns "".
func (v *Version) lacking() string {
	if !v.isServing() {
		return ""
	}
	for _, s := range v.Servers {
		if !s.Ending && (s.Ready || s.Current) && s.Lacks(v.GV) {
			return s.Name
		}
	}
	return ""
}

// cannotMove reports whether an APIService of ours cannot move to the target, which lacks the version,
// while another version can: a move that cannot finish should remove nothing.
func (v *Version) cannotMove() bool {
	settled := v.Rollout.Finished || !v.Identity.Deploys && v.Servers.FirstFailed() == nil
	return v.isOurs() && !v.isServing() && settled && len(v.Servers.Lacking(v.GV)) > 0 && v.OtherServed
}

// IsUnanswered reports whether no ready pod answers requests of a version in discovery, for long enough.
func (v *Version) IsUnanswered() bool {
	grace := RetireGraceAlone
	if v.Alternative {
		grace = RetireGrace
	}
	// Unanswered may be of pods that were asked before spec.existing was set.
	failing, answering := v.Servers.ByRequests(v.GV)
	return v.isOurs() && v.Identity.PointsToPods(v.Live) && v.Servers.AllAnswered() && v.Servers.FirstFailed() == nil &&
		len(failing) > 0 && len(answering) == 0 && v.Unanswered.Count >= RetireProbes && v.Unanswered.Elapsed >= grace
}

// failsTrial reports whether requests to an APIService on trial, or contested, have failed for long enough.
func (v *Version) failsTrial() bool {
	return v.Failing.Count >= trialRequests && v.Failing.Elapsed >= trialRequests*TrialRecheck
}
