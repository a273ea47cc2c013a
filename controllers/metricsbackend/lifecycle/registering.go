// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// EndpointDelay is how long a Service must have been ready before an APIService moves to it:
	// kube-proxy may learn of endpoints after the operator.
	EndpointDelay = 10 * time.Second
	// AdoptionGrace is for an APIService that adoption IfUnavailable takes over: a pod of its
	// implementation may be restarting.
	AdoptionGrace = time.Minute
	// TrialTime is how long requests through kube-apiserver must have succeeded before an adoption is
	// final.
	TrialTime = 15 * time.Second
	// TrialRecheck is the time between two of these requests.
	TrialRecheck = 2 * time.Second
)

var (
	registered = []State{Registered, Trial}
	existing   = []State{Moving, Registered, Trial}
	all        = []State{Pending, Moving, Registered, Trial}
)

// registering are the transitions of a version that the spec names, and that is not retiring.
var registering = []Transition{
	// Conflicts with others.
	{
		From: all, On: "an earlier step has found a conflict",
		when: func(v *Version) bool { return v.Conflict != "" }, text: func(v *Version) string { return v.Conflict },
	},
	{
		From: []State{Moving}, On: "the APIService points to our pods, and lacks our label",
		when: (*Version).lacksLabel, blocks: true, reason: v1alpha1.ReasonNotOwned, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s points to this backend's Service, but lacks the label that makes it ours: put it back (kubectl label apiservice %s %s=%s)",
				v.Name(), v.Name(), v1alpha1.LabelBackend, v.Identity.Serving.Backend)
		},
	},
	{
		From: []State{Moving}, On: "the label names another MetricsBackend, which does not exist, or is not being deleted",
		when: (*Version).isOtherBackends, needs: NeedHolder, holds: func(v *Version) bool { return v.Holder != HolderDeleting },
		reason: v1alpha1.ReasonNotOwned, text: func(v *Version) string {
			if v.Holder == HolderMissing {
				return fmt.Sprintf("APIService %s belongs to MetricsBackend %q, which does not exist: delete it (kubectl delete apiservice %s), and it is registered again",
					v.Name(), v.holder(), v.Name())
			}
			return fmt.Sprintf("APIService %s belongs to MetricsBackend %q: it is taken over once that MetricsBackend is deleted or no longer names the version",
				v.Name(), v.holder())
		},
	},
	{
		From: []State{Moving}, On: "kube-apiserver serves the version itself",
		when: func(v *Version) bool { return v.Live.Spec.Service == nil }, To: Pending, reason: v1alpha1.ReasonNotOwned, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s is served by kube-apiserver itself: take version %s out of %s.versions", v.Name(), v.GV.Version, v.Section)
		},
	},
	{
		From: []State{Moving}, On: "the APIService is someone else's, and who applies it writes it back at any time", To: Pending, reason: v1alpha1.ReasonNotOwned,
		when: (*Version).isReconciled, text: func(v *Version) string {
			manager := apiservices.ManagedBy(v.Live)
			return fmt.Sprintf("APIService %s belongs to someone else, it is served by %s, and %s %s. It stays theirs: take version %s out of "+
				"%s.versions; or %s", v.Name(), DescribeTarget(v.Live), manager.Who, v1alpha1.WritesBack, v.GV.Version, v.Section, manager.Remedy)
		},
	},
	{
		From: []State{Moving}, On: "the APIService is someone else's, may not be taken over now, and a takeover has failed before",
		when: func(v *Version) bool { return v.isRefused() && v.Paused.Message != "" }, paused: true,
	},
	{
		From: []State{Moving}, On: "the APIService is someone else's, and adoption is IfUnavailable: it has not been unavailable for a minute",
		when: func(v *Version) bool { return v.isRefused() && v.Adoption == v1alpha1.AdoptionIfUnavailable }, To: Pending,
		reason: v1alpha1.ReasonNotOwned, recheck: func(v *Version) time.Duration { return max(0, AdoptionGrace-v.unavailable()) }, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s belongs to someone else, it is served by %s, and %s.adoption is IfUnavailable: it is taken over once "+
				"kube-apiserver has reported it unavailable for %s; set that to Always to take it over now%s%s",
				v.Name(), DescribeTarget(v.Live), v.Section, AdoptionGrace, v.describeDifferences(), apiservices.ManagedBy(v.Live))
		},
	},
	{
		From: []State{Moving}, On: "the APIService is someone else's, and adoption is Refuse",
		when: (*Version).isRefused, To: Pending, reason: v1alpha1.ReasonNotOwned, text: func(v *Version) string {
			return fmt.Sprintf("APIService %s belongs to someone else, it is served by %s, and stays theirs: take version %s out of %s.versions; or remove "+
				"that implementation and its registration (kubectl delete apiservice %s); or, after kubectl metrics-backend preflight, "+
				"set %s.adoption to IfUnavailable to take it over only if it does not answer, or to Always to take it over now (it is handed "+
				"back when this MetricsBackend goes)%s%s",
				v.Name(), DescribeTarget(v.Live), v.GV.Version, v.Section, v.Name(), v.Section, v.describeDifferences(), apiservices.ManagedBy(v.Live))
		},
	},

	// What serves the version.
	{From: all, On: "the MetricsBackend is stalled, and the APIService points to the target", when: func(v *Version) bool { return v.Blocked && v.isInPlace() }},
	{
		From: []State{Pending}, On: "spec.existing does not serve the version",
		when: func(v *Version) bool { return v.LeftOut != "" }, text: func(v *Version) string { return v.LeftOut },
	},
	{
		From: []State{Pending, Moving}, On: "the MetricsBackend is stalled",
		when: func(v *Version) bool { return v.Blocked }, text: func(*Version) string { return "waits until the backend is no longer blocked" },
	},
	{
		From: []State{Pending, Moving}, On: "not all servers serve the version", To: Pending,
		when: func(v *Version) bool { return !v.isInPlace() && v.WaitReason() != "" }, text: (*Version).WaitReason,
	},

	// Writes.
	{
		From: []State{Moving}, On: "the APIService is someone else's, and another field manager has taken our authority out of its caBundle",
		when: (*Version).isAuthorityRemoved, To: Contested, reason: v1alpha1.ReasonContested, text: (*Version).describeRemovedAuthority,
	},
	{
		From: []State{Moving, Registered}, On: "another field manager has changed the APIService back three times within six hours",
		when: (*Version).isContested, To: Contested, reason: v1alpha1.ReasonContested, text: (*Version).describeContest,
	},
	{
		From: registered, On: "the APIService has a caBundle, and the target is not verified", moves: true,
		when: func(v *Version) bool {
			return v.mayApply() && len(v.Live.Spec.CABundle) > 0 && v.Identity.Target.InsecureSkipTLSVerify
		}, Do: Move,
	},
	{From: registered, On: "the APIService has not been compared with what we want", when: (*Version).mayApply, Do: Apply},
	{
		From: []State{Trial}, On: "requests have not yet succeeded for 15 s, three in a row",
		when: func(v *Version) bool { return v.Succeeding.Count < trialRequests || v.Succeeding.Elapsed < TrialTime }, recheck: func(*Version) time.Duration { return TrialRecheck }, text: func(*Version) string {
			return fmt.Sprintf("taken over, and final once requests through kube-apiserver have succeeded for %s", TrialTime)
		},
	},
	{From: []State{Trial}, On: "requests have succeeded for 15 s", when: always, Do: EndTrial, To: Registered},
	{From: []State{Registered}, On: "it is as we want it", when: always},
	{
		From: []State{Moving}, On: "the APIService points to someone else's implementation, and a takeover has failed before", moves: true,
		when: (*Version).isPausedMove, paused: true,
	},
	{
		From: []State{Moving}, On: "the target has been ready for less than 10 s", moves: true,
		when: func(v *Version) bool { return v.Served < EndpointDelay }, recheck: func(v *Version) time.Duration { return EndpointDelay - v.Served },
		text: func(v *Version) string {
			return fmt.Sprintf("points to %s until Service %s has been ready for %s", DescribeTarget(v.Live), v.Identity.Target, EndpointDelay)
		},
	},
	{
		From: []State{Moving}, On: "the APIService is someone else's, and autoscalers read metrics there that our pods do not answer, or that is not known", To: Pending,
		when: (*Version).isCompared, needs: NeedComparison, holds: func(v *Version) bool { return v.Uncompared != "" || len(v.Differences.Lost) > 0 },
		reason: v1alpha1.ReasonNotOwned, recheck: func(*Version) time.Duration { return AdoptionGrace }, text: func(v *Version) string {
			if v.Uncompared != "" {
				return fmt.Sprintf("APIService %s belongs to someone else, it is served by %s, and is not taken over before both were compared: %s",
					v.Name(), DescribeTarget(v.Live), v.Uncompared)
			}
			return fmt.Sprintf("APIService %s belongs to someone else, it is served by %s, and is not taken over since autoscalers would lose metrics: add "+
				"sources and rules for them, or set %s.adoptDespiteLostMetrics%s", v.Name(), DescribeTarget(v.Live), v.Section, v.describeDifferences())
		},
	},
	{
		From: []State{Moving}, On: "the APIService points to someone else's implementation, and not every kube-apiserver has reached our pods", moves: true,
		when: func(v *Version) bool { return v.Identity.Deploys && v.ReplacesOther() }, needs: NeedReach, holds: isUnreached, To: Canary, text: describeReach, recheck: reachRecheck,
	},
	{
		From: []State{Moving}, On: "the APIService is someone else's, and has a caBundle without our authority", moves: true,
		when: (*Version).lacksAuthority, Do: AddAuthority,
	},
	{
		From: []State{Moving}, On: "our authority has been in its caBundle for less than a minute", moves: true,
		when: func(v *Version) bool {
			since, added := v.authoritySince()
			return v.testsAuthority() && added && since < AuthorityTime
		},
		recheck: func(v *Version) time.Duration { since, _ := v.authoritySince(); return AuthorityTime - since },
		text: func(v *Version) string {
			return fmt.Sprintf("waits %s to see whether another field manager takes our CA out of its caBundle", duration.HumanDuration(AuthorityTime))
		},
	},
	{From: []State{Moving}, On: "the APIService is someone else's, or was", when: (*Version).isAdoption, Do: Move, To: Trial, moves: true},
	{From: []State{Moving}, On: "the APIService is ours, or another MetricsBackend's", when: always, Do: Move, To: Registered, moves: true},
	{
		From: []State{Pending}, On: "another version moves first",
		when: func(v *Version) bool { return v.OtherMoves != "" }, text: func(v *Version) string {
			return fmt.Sprintf("waits until %s answers from Service %s", v.OtherMoves, v.Identity.Target)
		},
	},
	{
		From: []State{Pending}, On: "another version of the group is on trial",
		when: func(v *Version) bool { return v.OtherTrial != "" }, text: func(v *Version) string { return fmt.Sprintf("waits until %s is verified", v.OtherTrial) },
	},
	{
		From: []State{Pending}, On: "another version of the group is someone else's, and may not be taken over",
		when: func(v *Version) bool { return v.Shared && v.OtherNotOwned != "" }, text: func(v *Version) string { return v.OtherNotOwned },
	},
	{
		From: []State{Pending}, On: "another version of the group is someone else's, or it was contested, and that has failed before",
		when: (*Version).isPausedMove, paused: true,
	},
	{
		From: []State{Pending}, On: "another version of the group is someone else's, and not every kube-apiserver has reached our pods",
		when: (*Version).isShared, needs: NeedReach, holds: isUnreached, To: Canary, text: describeReach, recheck: reachRecheck,
	},
	{From: []State{Pending}, On: "another version of the group is someone else's", when: (*Version).isShared, Do: Register, To: Trial},
	{From: []State{Pending}, On: "nobody else serves the group", when: always, Do: Register, To: Registered},
}

func (v *Version) pointsToTarget() bool { return v.Live != nil && v.Identity.PointsToTarget(v.Live) }

// isInPlace reports whether the APIService is ours and points to the target.
func (v *Version) isInPlace() bool { return v.isOurs() && v.pointsToTarget() }

func (v *Version) lacksLabel() bool { return v.holder() == "" && v.Identity.PointsToPods(v.Live) }

// holder returns the MetricsBackend that the APIService's label names, or "".
func (v *Version) holder() string { return v.Live.Labels[v1alpha1.LabelBackend] }

func (v *Version) isOtherBackends() bool { return v.holder() != "" && !v.Identity.HasLabel(v.Live) }

// IsForeign reports whether the APIService is someone else's: no label is on it, or that of another MetricsBackend, from
// which another field manager has taken it.
func (v *Version) IsForeign() bool {
	return v.holder() == "" && !v.Identity.PointsToPods(v.Live) ||
		v.isOtherBackends() && !PointsToLabelled(v.Live) && isRepointed(v.Live)
}

// isRefused reports whether the APIService is someone else's, or to be handed back to someone else, and adoption keeps
// it from being taken over now.
func (v *Version) isRefused() bool {
	switch {
	case v.isReconciled():
		return true
	case v.Adoption == v1alpha1.AdoptionAlways, !v.IsForeign() && (!v.isOtherBackends() || !v.IsRecorded()):
		return false
	case v.Adoption == v1alpha1.AdoptionIfUnavailable:
		return v.unavailable() < AdoptionGrace
	}
	return true
}

// isCompared reports whether our pods must answer all that autoscalers read from the implementation of someone else.
func (v *Version) isCompared() bool {
	return v.Identity.Deploys && v.IsForeign() && !v.DespiteLost && v.GV.Group != manifests.ResourceMetricsGroup && v.unavailable() < AdoptionGrace
}

func (v *Version) describeDifferences() string {
	described := ""
	for _, part := range []struct {
		what  string
		lines []string
	}{{"lack", v.Differences.Lost}, {"answer differently", v.Differences.Changed}} {
		if n := len(part.lines); n > 0 {
			const shown = 3
			described += fmt.Sprintf(". Our pods %s: %s", part.what, strings.Join(part.lines[:min(n, shown)], "; ")+text.AndMore(n-shown, "difference"))
		}
	}
	return described
}

// isReconciled reports whether the APIService is someone else's, and who applies it writes it back at any time.
func (v *Version) isReconciled() bool {
	return v.IsForeign() && apiservices.ManagedBy(v.Live).Reconciles
}

// unavailable returns for how long kube-apiserver has reported the APIService unavailable.
func (v *Version) unavailable() time.Duration {
	checked := helper.GetAPIServiceConditionByType(v.Live, apiregistrationv1.Available)
	if checked == nil || checked.Status != apiregistrationv1.ConditionFalse {
		return 0
	}
	return v.Now.Sub(checked.LastTransitionTime.Time)
}

// ReplacesOther reports whether the APIService is to move from an implementation that no
// MetricsBackend deployed: that of someone else, or of a spec.existing.
func (v *Version) ReplacesOther() bool {
	return v.state() == Moving && !v.Identity.PointsToPods(v.Live) && !PointsToLabelled(v.Live)
}

// isAdoption reports whether the APIService, which moves, is or was someone else's.
func (v *Version) isAdoption() bool {
	return v.IsRecorded() || v.ReplacesOther() || IsUnverified(v.Live)
}

// isShared reports whether our pods are about to serve a version beside one of someone else, which
// clients may prefer.
func (v *Version) isShared() bool { return v.Shared && v.Identity.Deploys }

func (v *Version) isPausedMove() bool {
	switch {
	case v.Paused.Message == "":
		return false
	case v.Live == nil:
		contested := v.Paused.Reason == v1alpha1.ReasonContested && strings.HasPrefix(v.Paused.Message, "APIService "+v.Name()+" ")
		return v.Shared || contested
	}
	return v.ReplacesOther()
}

// mayApply reports whether the APIService was not compared with what we want, and may be written.
func (v *Version) mayApply() bool { return !v.Applied && !v.isContested() }

func isUnreached(v *Version) bool { return !v.Reach.Reached }

func reachRecheck(v *Version) time.Duration { return v.Reach.RetryAfter }

func describeReach(v *Version) string {
	return fmt.Sprintf("waits until every kube-apiserver has reached the pods of Service %s", v.Identity.Target)
}
