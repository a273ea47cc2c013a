// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"
)

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
		From: existing, On: "no ready pod has answered the version's requests for a minute, or for ten without another version to use",
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
	i := slices.IndexFunc(v.Servers, func(s Server) bool { return !s.Ending && (s.Ready || s.Current) && s.Lacks(v.GV) })
	if i < 0 {
		return ""
	}
	return v.Servers[i].Name
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
