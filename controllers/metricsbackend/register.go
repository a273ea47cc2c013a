// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// register brings desired versions into discovery once the rollout is finished
// and every ready pod, at least one, said that it serves them; and leads those to
// the target that lead elsewhere, each by one write, when the same is true. An
// APIService that already leads to the target is kept as it should be at any time:
// its caBundle must follow the certificates.
func (r *Reconciler) register(ctx context.Context, s *scope) error {
	if !s.observed {
		return nil
	}
	var did registration
	for _, gv := range s.movesFirst() {
		if err := r.registerVersion(ctx, s, gv, &did); err != nil {
			return err
		}
	}
	for _, gv := range s.yielded {
		did.pending = append(did.pending, apiServiceName(gv)+" ("+s.held[apiServiceName(gv)].message+")")
	}
	s.tellHeld()
	s.judgeRegistration(&did)
	return nil
}

// movesFirst are the desired versions, those first whose APIServices lead elsewhere:
// a group is not spread over two implementations for longer than it must.
func (s *scope) movesFirst() []schema.GroupVersion {
	versions := slices.Clone(s.desired)
	slices.SortStableFunc(versions, func(a, b schema.GroupVersion) int {
		switch elsewhere := s.elsewhere(a); {
		case elsewhere == s.elsewhere(b):
			return 0
		case elsewhere:
			return -1
		}
		return 1
	})
	return versions
}

// elsewhere tells whether the version's APIService exists and does not lead to the
// target.
func (s *scope) elsewhere(gv schema.GroupVersion) bool {
	name := apiServiceName(gv)
	live := s.registered[name]
	return s.foreign[name] != nil || live != nil && !leadsTo(live, s.target())
}

// registration is what became of the versions.
type registration struct{ pending, registered, leftOut []string }

func (r *Reconciler) registerVersion(ctx context.Context, s *scope, gv schema.GroupVersion, did *registration) error {
	name := apiServiceName(gv)
	live := s.registered[name]
	settled := live != nil && leadsTo(live, s.target())
	wait := func(why string) {
		if live == nil {
			s.setState(gv, v1alpha1.APIServicePending, why)
		}
		did.pending = append(did.pending, name+" ("+why+")")
	}
	if s.apiServices[name].State == v1alpha1.APIServiceRetiring {
		did.pending = append(did.pending, name+" ("+s.apiServices[name].Message+")")
		return nil
	}
	if lacking := s.leftOut(gv); lacking != "" {
		s.setState(gv, v1alpha1.APIServicePending, lacking)
		did.leftOut = append(did.leftOut, name+" ("+lacking+")")
		return nil
	}
	why := s.notYet(gv)
	if why != "" || settled || s.held[name] != nil {
		// The next move starts its own soak.
		s.history.streaks.ResetFunc(func(key stateKey) bool { return key.state == targetReady && key.name == name })
	}
	switch {
	case settled && s.blocked:
		did.registered = append(did.registered, name)
		return nil
	case s.held[name] != nil:
		wait(s.held[name].message)
		return nil
	case s.blocked:
		wait("waits until the backend is no longer held up")
		return nil
	case !settled && why != "":
		wait(why)
		return nil
	}
	done, err := r.lead(ctx, s, gv, live)
	switch {
	case err != nil:
		return err
	case done != "":
		wait(done)
	default:
		did.registered = append(did.registered, name)
	}
	return nil
}

// lead makes the version's APIService lead to the target, whoever has it now, and
// returns what that waits for.
func (r *Reconciler) lead(ctx context.Context, s *scope, gv schema.GroupVersion, live *apiregistrationv1.APIService) (string, error) {
	name := apiServiceName(gv)
	if live == nil || !s.holds(live) {
		// Someone may have registered it since the ownership was checked.
		var err error
		if live, err = r.findAPIService(ctx, s, gv); err != nil {
			return "", err
		}
	}
	if held := s.held[name]; held != nil {
		return held.message, nil
	}
	if live == nil && s.moving != "" {
		return fmt.Sprintf("waits until %s leads to Service %s", s.moving, s.target()), nil
	}
	if live == nil {
		klog.FromContext(ctx).Info("Registering APIService", "apiService", name)
		return "", r.apply(ctx, s, gv, nil)
	}
	target := s.target()
	rival, contended := s.rivalOf(live, target)
	if contended && s.contest(name).paused(s.now) {
		return s.holdContested(gv, live, rival), nil
	}
	moves := !s.holds(live) || !leadsTo(live, target)
	if moves {
		if !s.waited(stateKey{targetReady, name, target.String()}, endpointSoak) {
			s.moving = name
			return fmt.Sprintf("leads to %s until Service %s has been ready for %s", whereTo(live), target, endpointSoak), nil
		}
	}
	if contended && !s.contest(name).allowWrite(rival, s.now) {
		return s.holdContested(gv, live, rival), nil
	}
	if !contended {
		s.history.contests.expire(name, s.now)
	}
	if !moves && (len(live.Spec.CABundle) == 0 || !target.InsecureSkipTLSVerify) {
		return "", r.apply(ctx, s, gv, live)
	}
	if err := r.seize(ctx, s, gv, live); err != nil {
		return "", err
	}
	// Looked at again at once: whoever is asked through it is asked elsewhere now.
	s.again()
	return "", nil
}

// apply registers the version, or corrects its registration.
func (r *Reconciler) apply(ctx context.Context, s *scope, gv schema.GroupVersion, live *apiregistrationv1.APIService) error {
	desired := manifests.APIService(s.serving, gv, s.target())
	if live != nil {
		if record, ok := live.Annotations[v1alpha1.AnnotationPreviousOwner]; ok {
			desired.WithAnnotations(map[string]string{v1alpha1.AnnotationPreviousOwner: record})
		}
	}
	if _, err := r.applier.Apply(ctx, s.backend.Name, desired); err != nil {
		return err
	}
	if live == nil {
		// Pods are asked again right after it: a mismatch retires the version.
		s.registered[apiServiceName(gv)] = &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(gv)}}
		s.again()
	}
	return nil
}

// judgeRegistration sets APIServicesRegistered.
func (s *scope) judgeRegistration(did *registration) {
	if len(s.desired) > 0 && len(did.pending) == 0 && len(did.registered) == 0 {
		did.pending = did.leftOut
	}
	switch {
	case len(did.pending) > 0:
		reason := v1alpha1.ReasonDependencyNotReady
		switch {
		case len(s.heldInOrder) > 0:
			reason = s.held[apiServiceName(s.heldInOrder[0])].reason
		case s.condition(v1alpha1.ConditionServingReady).Reason == v1alpha1.ReasonVersionNotServed:
			reason = v1alpha1.ReasonVersionNotServed
		}
		s.mark(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, reason,
			"not registered yet: "+strings.Join(did.pending, ", "))
	case len(did.registered) > 0:
		message := strings.Join(did.registered, ", ") + " registered for Service " + s.target().String()
		if len(did.leftOut) > 0 {
			message += "; left out: " + strings.Join(did.leftOut, ", ")
		}
		s.mark(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, message)
	default:
		s.mark(v1alpha1.ConditionAPIServicesRegistered, metav1.ConditionFalse, v1alpha1.ReasonDependencyNotReady,
			"no version can be registered: see Ready for the reason")
	}
}

// leftOut is why the implementation that someone else runs goes without this
// version, or empty.
func (s *scope) leftOut(gv schema.GroupVersion) string {
	if s.deploys() || s.implementation == nil || s.registered[apiServiceName(gv)] != nil {
		return ""
	}
	lacking := s.implementation.lacking(gv)
	if len(lacking) == 0 {
		return s.leftOutBefore(gv)
	}
	return fmt.Sprintf("Service %s does not serve it at endpoint %s", s.implementation.target, strings.Join(lacking, ", "))
}

// leftOutBefore is what leftOut said when all endpoints could be asked last, for as
// long as one cannot: a version is not missed because nobody says now that it lacks.
func (s *scope) leftOutBefore(gv schema.GroupVersion) string {
	registered := meta.FindStatusCondition(s.before.Conditions, v1alpha1.ConditionAPIServicesRegistered)
	if s.implementation.allAnswered() || registered == nil ||
		registered.Status != metav1.ConditionTrue || registered.ObservedGeneration != s.backend.Generation {
		return ""
	}
	// What is pending although all that is wanted is registered was left out.
	for _, known := range s.before.APIServices {
		if known.Name == apiServiceName(gv) && known.State == v1alpha1.APIServicePending {
			return known.Message
		}
	}
	return ""
}

// notYet is why the version may not be registered yet, or empty.
func (s *scope) notYet(gv schema.GroupVersion) string {
	failing, _ := s.requests(gv)
	switch {
	case !s.deploys():
		return s.notYetExisting(gv)
	case s.deployment == nil || !s.rolledOut:
		return "waits until the rollout is finished"
	case len(s.caBundle) == 0:
		return "waits for the certificates"
	case s.servedByAll(gv) && s.stillEnding(gv) != "":
		return "waits for the end of " + s.stillEnding(gv)
	case s.proving[gv] != "":
		return s.proving[gv]
	case s.servedByAll(gv):
		return ""
	case len(s.lacking(gv)) > 0:
		return "not served by " + strings.Join(s.lacking(gv), ", ")
	case slices.ContainsFunc(s.readyPods(), func(p pod) bool { return p.err != nil }):
		return "waits until every ready pod can be asked"
	case len(failing) > 0:
		return "its requests fail in " + describeFailing(gv, failing)
	case len(s.readyPods()) == 0:
		return "waits for a ready pod"
	}
	return fmt.Sprintf("waits for the answers of %d pods", len(s.readyPods()))
}

// notYetExisting is notYet for the implementation that someone else runs.
func (s *scope) notYetExisting(gv schema.GroupVersion) string {
	found := s.implementation
	switch {
	case found == nil:
		return "waits until Service " + s.target().String() + " was read"
	case found.missing:
		return found.why
	case len(found.endpoints) == 0:
		return "waits for a ready endpoint of Service " + found.target.String()
	case found.servesAll(gv):
		return ""
	}
	return "waits until every ready endpoint of Service " + found.target.String() + " can be asked"
}
