// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
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
	for _, gv := range s.movesFirst() {
		if err := r.registerVersion(ctx, s, gv, &result); err != nil {
			return err
		}
	}
	for _, gv := range s.excluded() {
		result.pending = append(result.pending, apiServiceName(gv)+" ("+s.conflict(apiServiceName(gv)).message+")")
	}
	s.reportConflicts()
	s.setAPIServicesRegistered(&result)
	return nil
}

// movesFirst returns the desired versions, those first whose APIServices point elsewhere:
// a group is not split between two implementations for longer than necessary.
func (s *reconcileState) movesFirst() []schema.GroupVersion {
	var moves, others []schema.GroupVersion
	for _, gv := range s.versions.desired {
		if s.pointsElsewhere(gv) {
			moves = append(moves, gv)
		} else {
			others = append(others, gv)
		}
	}
	return append(moves, others...)
}

// pointsElsewhere reports whether the version's APIService exists with another backend
// than the target.
func (s *reconcileState) pointsElsewhere(gv schema.GroupVersion) bool {
	name := apiServiceName(gv)
	live := s.registered[name]
	return s.versions.foreign[name] != nil || live != nil && !s.ours().PointsToTarget(live)
}

// registrationResult is the outcome for each version, by APIService name.
type registrationResult struct {
	pending, registered, notOffered []string
	// moving is an APIService that waits to move to the target, or empty.
	moving string
}

func (r *Reconciler) registerVersion(ctx context.Context, s *reconcileState, gv schema.GroupVersion, result *registrationResult) error {
	name := apiServiceName(gv)
	live := s.registered[name]
	upToDate := live != nil && s.ours().PointsToTarget(live)
	wait := func(why string) {
		if live == nil {
			s.setVersionState(gv, v1alpha1.APIServicePending, why)
		}
		result.pending = append(result.pending, name+" ("+why+")")
	}
	if s.apiServices[name].State == v1alpha1.APIServiceRetiring {
		result.pending = append(result.pending, name+" ("+s.apiServices[name].Message+")")
		return nil
	}
	if notServing := s.notOffered(gv); notServing != "" {
		s.setVersionState(gv, v1alpha1.APIServicePending, notServing)
		result.notOffered = append(result.notOffered, name+" ("+notServing+")")
		return nil
	}
	why := s.waitReason(gv)
	conflict := s.conflict(name)
	if why != "" || upToDate || conflict != nil {
		// The next move starts its own delay.
		s.history.streaks.ResetFunc(func(key stateKey) bool { return key.state == targetReady && key.name == name })
	}
	switch {
	case upToDate && s.outcome.blocked:
		result.registered = append(result.registered, name)
		return nil
	case conflict != nil:
		wait(conflict.message)
		return nil
	case s.outcome.blocked:
		wait("waits until the backend is no longer blocked")
		return nil
	case !upToDate && why != "":
		wait(why)
		return nil
	}
	why, err := r.ensureRegistered(ctx, s, gv, live, &result.moving)
	switch {
	case err != nil:
		return err
	case why != "":
		wait(why)
	default:
		result.registered = append(result.registered, name)
	}
	return nil
}

// ensureRegistered points the version's APIService at the target and returns what it is
// waiting for, or "". New registrations wait while moving names an APIService.
func (r *Reconciler) ensureRegistered(ctx context.Context, s *reconcileState, gv schema.GroupVersion, live *apiregistrationv1.APIService, moving *string) (string, error) {
	name := apiServiceName(gv)
	if live == nil || !s.ours().HasLabel(live) {
		// Another owner may have registered it since the ownership check.
		var err error
		if live, err = r.findAPIService(ctx, s, gv); err != nil {
			return "", err
		}
	}
	if c := s.conflict(name); c != nil {
		return c.message, nil
	}
	if live == nil {
		return r.create(ctx, s, gv, *moving)
	}
	target := s.target()
	manager, contested := s.conflictingManager(live, target)
	if contested && s.contest(name).paused(s.now) {
		return s.addContested(gv, live, manager), nil
	}
	if s.replacesOther(live) {
		if why := s.pausedAdoption(gv); why != "" {
			*moving = name
			return why, nil
		}
	}
	moves := s.moves(live)
	if moves && !s.waited(stateKey{targetReady, name, target.String()}, endpointDelay) {
		*moving = name
		return fmt.Sprintf("points to %s until Service %s has been ready for %s", lifecycle.DescribeTarget(live), target, endpointDelay), nil
	}
	if s.replacesOther(live) {
		if why, err := r.checkAdoption(ctx, s, gv); err != nil || why != "" {
			*moving = name
			return why, err
		}
	}
	if contested && !s.contest(name).allowWrite(manager, s.now) {
		return s.addContested(gv, live, manager), nil
	}
	if !contested {
		s.history.contests.expire(name, s.now)
	}
	if !moves && (len(live.Spec.CABundle) == 0 || !target.InsecureSkipTLSVerify) {
		if err := r.apply(ctx, s, gv, live); err != nil {
			return "", err
		}
		return r.finishAdoption(ctx, s, live)
	}
	if err := r.adoptAPIService(ctx, s, gv, live); err != nil {
		return "", err
	}
	*moving = name
	// Verify the new target at once.
	s.requeueNow()
	return "", nil
}

// create registers a version that has no APIService, and returns what it is waiting for,
// or "". Beside versions of someone else that is an adoption, too: clients use the best
// version of a group.
func (r *Reconciler) create(ctx context.Context, s *reconcileState, gv schema.GroupVersion, moving string) (string, error) {
	if moving != "" {
		return fmt.Sprintf("waits until %s answers from Service %s", moving, s.target()), nil
	}
	for _, name := range s.registeredNames() {
		if known, ok := versionOf(name); ok && known.Group == gv.Group && known != gv && isUnverified(s.registered[name]) {
			return fmt.Sprintf("waits until %s is verified", name), nil
		}
	}
	if s.sharedGroups.Has(gv.Group) {
		notOurs := find(s.versions.conflicts, func(c versionConflict) bool { return c.gv.Group == gv.Group && c.reason == v1alpha1.ReasonNotOwned })
		if notOurs.message != "" {
			return notOurs.message, nil
		}
		if why, err := r.checkAdoption(ctx, s, gv); err != nil || why != "" {
			return why, err
		}
	}
	klog.FromContext(ctx).Info("Registering APIService", "apiService", apiServiceName(gv))
	s.startTrial(apiServiceName(gv))
	return "", r.apply(ctx, s, gv, nil)
}

// apply registers the version, or corrects its registration.
func (r *Reconciler) apply(ctx context.Context, s *reconcileState, gv schema.GroupVersion, live *apiregistrationv1.APIService) error {
	desired := manifests.APIService(s.serving, gv, s.target())
	record := ""
	if live != nil {
		record = live.Annotations[v1alpha1.AnnotationPreviousOwner]
	}
	unverified := live == nil && s.deploys() && s.sharedGroups.Has(gv.Group) || live != nil && isUnverified(live)
	desired.WithAnnotations(annotations(record, unverified))
	if _, err := r.applier.Apply(ctx, s.backend.Name, desired); err != nil {
		return err
	}
	if live == nil {
		// The next pass probes the pods again: a mismatch retires the version.
		target := s.target()
		s.registered[apiServiceName(gv)] = &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(gv)},
			Spec: apiregistrationv1.APIServiceSpec{Service: &apiregistrationv1.ServiceReference{
				Namespace: target.Namespace, Name: target.Name, Port: &target.Port,
			}},
		}
		s.requeueNow()
	}
	return nil
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
	notServing := s.probed.existing.notServing(gv)
	if len(notServing) == 0 {
		return s.storedNotOffered(gv)
	}
	return fmt.Sprintf("Service %s does not serve it at endpoint %s", s.probed.existing.target, strings.Join(notServing, ", "))
}

// storedNotOffered returns the stored notOffered while some endpoint does not answer: a
// version does not become required because the endpoint that lacks it is silent.
func (s *reconcileState) storedNotOffered(gv schema.GroupVersion) string {
	registered := meta.FindStatusCondition(s.storedStatus.Conditions, v1alpha1.ConditionAPIServicesRegistered)
	if s.probed.existing.allAnswered() || registered == nil ||
		registered.Status != metav1.ConditionTrue || registered.ObservedGeneration != s.backend.Generation {
		return ""
	}
	// Pending versions were left out, since all required ones were registered.
	if known := storedVersion(&s.storedStatus, apiServiceName(gv)); known.State == v1alpha1.APIServicePending {
		return known.Message
	}
	return ""
}
