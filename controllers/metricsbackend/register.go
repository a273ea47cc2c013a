// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
)

// register creates the APIServices of desired versions once a ready pod serves them and
// none that answers lacks them (see mayCreate); and moves APIServices that point elsewhere
// to the target once the rollout is finished and all ready pods, at least one, serve them,
// each by one write. An APIService that points to the target is always kept up to date:
// its caBundle follows the certificates.
func (r *Reconciler) register(ctx context.Context, s *reconcileState) error {
	if s.registered == nil {
		return nil
	}
	var result registrationResult
	versions := slices.Clone(s.versions.desired)
	// A group is not split between two implementations for longer than necessary.
	slices.SortStableFunc(versions, func(a, b schema.GroupVersion) int { return cmp.Compare(s.registrationOrder(a), s.registrationOrder(b)) })
	for _, gv := range versions {
		if err := r.registerVersion(ctx, s, gv, &result); err != nil {
			return err
		}
	}
	for _, gv := range s.excluded() {
		result.pending = append(result.pending, apiServiceName(gv)+" ("+s.conflict(gv).message+")")
	}
	s.reportConflicts()
	s.setAPIServicesRegistered(&result)
	return nil
}

// registrationOrder puts versions first whose APIServices point to another Service than the target.
func (s *reconcileState) registrationOrder(gv schema.GroupVersion) int {
	live, name := s.registered[apiServiceName(gv)], apiServiceName(gv)
	if s.others[name] != nil || live != nil && !s.identity().PointsToTarget(live) {
		return 0
	}
	return 1
}

// registrationResult is the outcome for each version, by APIService name.
type registrationResult struct {
	pending, registered, notOffered []string
	// moving is an APIService that waits to move to the target, or empty.
	moving string
}

func (r *Reconciler) registerVersion(ctx context.Context, s *reconcileState, gv schema.GroupVersion, result *registrationResult) error {
	name := apiServiceName(gv)
	if s.apiServices[name].State.IsRetiring() {
		result.pending = append(result.pending, name+" ("+s.apiServices[name].Message+")")
		return nil
	}
	v := s.version(gv)
	s.observeServers(v)
	v.OtherMoves = result.moving
	d, err := r.advance(ctx, s, v)
	if err != nil {
		return err
	}
	s.recordDecision(v, d)
	if s.deploys() && d.Waits != "" && v.Live != nil && v.IsForeign() && v.WaitReason() == "" {
		r.compare(ctx, s, v, compareRefused) // for the next status
	}
	s.versions.decided[name] = d.State
	if d.Moves {
		result.moving = name
	}
	if d.Blocks {
		// Nothing of the others is written either.
		s.outcome.blocked = true
		s.setStalled(&stalledError{d.Reason, d.Waits})
	}
	switch {
	case d.Waits == "":
		if v.IsRecorded() {
			if who := apiservices.ManagedBy(v.Live).Who; who != "" {
				name += " (still applied by " + who + ", see status.apiServices)"
			}
		}
		result.registered = append(result.registered, name)
		return nil
	case v.LeftOut != "":
		result.notOffered = append(result.notOffered, name+" ("+d.Waits+")")
	default:
		result.pending = append(result.pending, name+" ("+d.Waits+")")
	}
	if s.registered[name] == nil {
		state := v1alpha1.APIServicePending
		if d.State == lifecycle.Canary {
			state = v1alpha1.APIServiceCanary
		}
		s.setVersionState(gv, state, d.Waits)
	}
	return nil
}

// version returns what is known of a version that the spec names.
func (s *reconcileState) version(gv schema.GroupVersion) *lifecycle.Version {
	name, section := apiServiceName(gv), s.spec.Section(gv.Group)
	v := &lifecycle.Version{
		Known: sets.New[lifecycle.Need](), GV: gv, Identity: s.identity(), Now: s.now, Section: "spec." + section.Field,
		Adoption: section.Adoption, DespiteLost: section.AdoptDespiteLostMetrics, Differences: s.history.comparisons[name].Result,
		Conflict: s.conflict(gv).message, Wanted: slices.Contains(s.versions.desired, gv),
		Blocked: s.outcome.blocked, Paused: s.history.adoption.Paused(s.now),
		Succeeding: s.history.streaks.Get(stateKey{state: adoptionSucceeding, name: name}),
		OtherNotOwned: find(s.versions.conflicts, func(c defect) bool {
			return c.gv != gv && c.gv.Group == gv.Group && c.reason == v1alpha1.ReasonNotOwned
		}).message,
	}
	live := s.registered[name]
	if live == nil {
		live = s.others[name]
	}
	s.setLive(v, live)
	s.observeGroup(v)
	return v
}

// observeGroup sets what is registered of a version's group.
func (s *reconcileState) observeGroup(v *lifecycle.Version) {
	v.Elsewhere = slices.ContainsFunc(s.excluded(), func(other schema.GroupVersion) bool { return other.Group == v.GV.Group })
	for _, live := range slices.Concat(slices.Collect(maps.Values(s.others)), slices.Collect(maps.Values(s.registered))) {
		if gv, ok := manifests.VersionOf(live.Name); !ok || gv.Group != v.GV.Group {
			continue
		}
		ours, inPlace := s.others[live.Name] == nil, v.Identity.PointsToTarget(live)
		v.Elsewhere = v.Elsewhere || !ours || !inPlace || live.Name == v.Name()
		v.Shared = v.Shared || live.Spec.Service != nil && !lifecycle.PointsToLabelled(live) && (!ours || v.Identity.IsRepointed(live))
		if ours && inPlace && live.Name != v.Name() && lifecycle.IsUnverified(live) {
			v.OtherTrial = max(v.OtherTrial, live.Name)
		}
	}
}

// setLive sets the APIService of a version, and the contest over it.
func (s *reconcileState) setLive(v *lifecycle.Version, live *apiregistrationv1.APIService) {
	v.SetLive(live)
	v.Contest = nil
	v.Known.Delete(lifecycle.NeedHolder)
	if live != nil {
		v.Contest = s.contest(v.Name())
	}
}

// observeServers sets what a version waits for until its servers serve it, and since when they do.
func (s *reconcileState) observeServers(v *lifecycle.Version) {
	v.LeftOut = s.notOffered(v.GV)
	v.Servers, v.Rollout = s.servers(), lifecycle.Rollout{Finished: s.rollout.finished, Stuck: s.rollout.failing}
	if found := s.probed.existing; found != nil {
		v.Asked, v.Missing = true, found.missing
		if v.Live != nil && v.Identity.PointsToTarget(v.Live) {
			v.Gone = found.missing
		}
	}
	v.Unanswered = s.history.streaks.Get(stateKey{state: allRequestsFailing, name: v.GV.String()})
	v.Recovering, v.Alternative = s.probed.recovering[v.GV], s.hasAlternative(v.GV)
	v.OtherServed = slices.ContainsFunc(s.versions.desired, func(other schema.GroupVersion) bool {
		return (other.Group == v.GV.Group || !s.deploys()) && v.Servers.AllServe(other)
	})
	v.Lacked = map[string]bool{}
	for _, server := range v.Servers {
		v.Lacked[server.Template] = s.history.streaks.Get(stateKey{templateLacks, v.GV.String(), server.Template}).Count > 0
	}
	moves := v.Live != nil && (!v.Identity.HasLabel(v.Live) || !v.Identity.PointsToTarget(v.Live))
	if !moves || v.WaitReason() != "" || v.Conflict != "" {
		// The next move starts its own delay.
		s.history.streaks.ResetFunc(func(key stateKey) bool { return key.state == targetReady && key.name == v.Name() })
		return
	}
	v.Served = s.history.streaks.Set(stateKey{targetReady, v.Name(), v.Identity.Target.String()}, true).Elapsed
}

// apply registers the version, or corrects its registration.
func (r *Reconciler) apply(ctx context.Context, s *reconcileState, v *lifecycle.Version, unverified bool) error {
	record := s.record(v.Name(), v.Live)
	desired := manifests.APIService(s.serving, v.GV, v.Identity.Target).WithAnnotations(annotations(record, unverified))
	if _, err := r.applier.Apply(ctx, s.backend.Name, desired); err != nil {
		return err
	}
	if v.Live == nil {
		// The next pass probes the pods again: a mismatch retires the version.
		s.registered[v.Name()] = &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: v.Name(), Annotations: annotations(record, unverified)},
			Spec:       apiregistrationv1.APIServiceSpec{Service: v.Identity.Target.Reference()},
		}
		s.requeueNow()
	}
	return nil
}

// record returns the record of the previous owner of an APIService of ours, or "". If someone has deleted it, the status
// has that.
func (s *reconcileState) record(name string, live *apiregistrationv1.APIService) string {
	switch {
	case live != nil:
		return live.Annotations[v1alpha1.AnnotationPreviousOwner]
	case s.others[name] != nil:
		return ""
	}
	return storedVersion(&s.storedStatus, name).PreviousOwner
}

func (s *reconcileState) setAPIServicesRegistered(result *registrationResult) {
	if len(s.versions.desired) > 0 && len(result.pending) == 0 && len(result.registered) == 0 {
		result.pending = result.notOffered
	}
	switch {
	case len(result.pending) > 0:
		reason := v1alpha1.ReasonDependencyNotReady
		switch {
		case len(s.versions.conflicts) > 0:
			reason = s.versions.conflicts[0].reason
		case s.condition(v1alpha1.ConditionServingReady).Reason == v1alpha1.ReasonVersionNotServed:
			reason = v1alpha1.ReasonVersionNotServed
		}
		s.setCondition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, reason,
			"not registered yet: "+strings.Join(result.pending, ", "))
	case len(result.registered) > 0:
		message := strings.Join(result.registered, ", ") + " registered for Service " + s.target().String()
		if len(result.notOffered) > 0 {
			message += "; left out: " + strings.Join(result.notOffered, ", ")
		}
		s.setCondition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
	default:
		s.setCondition(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady,
			"no version can be registered: see Ready for the reason")
	}
}

// notOffered returns why the version is left out since spec.existing does not serve it,
// or "".
func (s *reconcileState) notOffered(gv schema.GroupVersion) string {
	if s.deploys() || s.probed.existing == nil || s.registered[apiServiceName(gv)] != nil {
		return ""
	}
	lacking := s.servers().Lacking(gv)
	if len(lacking) == 0 {
		return s.storedNotOffered(gv)
	}
	return fmt.Sprintf("Service %s does not serve it at %s", s.target(), strings.Join(lacking, ", "))
}

// storedNotOffered returns the stored notOffered while some endpoint does not answer: a
// version does not become required because the endpoint that lacks it is silent.
func (s *reconcileState) storedNotOffered(gv schema.GroupVersion) string {
	registered := meta.FindStatusCondition(s.storedStatus.Conditions, v1alpha1.ConditionAPIServicesRegistered)
	if s.servers().AllAnswered() || registered == nil ||
		registered.Status != metav1.ConditionTrue || registered.ObservedGeneration != s.backend.Generation {
		return ""
	}
	// Pending versions were left out, since all required ones were registered.
	if known := storedVersion(&s.storedStatus, apiServiceName(gv)); known.State == v1alpha1.APIServicePending {
		return known.Message
	}
	return ""
}
