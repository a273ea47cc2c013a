// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// retire removes versions from discovery: registered ones that are not desired, known to
// this binary or not, and those that a phase asked for. The intent is stored before the
// first deletion, so that a new process continues.
func (r *Reconciler) retire(ctx context.Context, s *reconcileState) error {
	intents := s.intents()
	for _, intent := range intents {
		// Stays in the status until it is confirmed, whatever fails below.
		s.apiServices[intent.Name] = intent
	}
	if s.registered == nil {
		return nil
	}
	fresh := false
	for _, name := range s.registeredNames() {
		gv, ok := manifests.VersionOf(name)
		if !ok || storedVersion(&s.storedStatus, name).State.IsRetiring() {
			continue
		}
		v := s.version(gv)
		var err error
		if v.Gone, err = r.serviceGone(ctx, s, v.Live); err != nil {
			return err
		}
		d, err := r.decide(ctx, s, v, lifecycle.NeedConsumers)
		if err != nil {
			return err
		}
		if d.Action == lifecycle.Retire {
			fresh = true
			s.setVersionState(gv, v1alpha1.APIServiceRetiring, d.Note)
		}
	}
	if fresh {
		s.requeueNow()
		return s.waitRetiring("to be removed from discovery")
	}

	var names []string
	for _, intent := range intents {
		names = append(names, intent.Name)
	}
	if waits, err := r.retireVersions(ctx, s, names); err != nil {
		return err
	} else if waits != "" {
		return s.waitRetiring(waits)
	}
	if len(s.versions.kept) > 0 {
		return s.setKeptCondition()
	}
	s.history.streaks.ResetFunc(func(key stateKey) bool { return key.state == previousLacking || key.state == autoscalerFailing })
	s.setCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"only desired versions are in discovery")
	return nil
}

// serviceGone returns why nobody can answer behind an APIService of ours, or "": the namespace of our pods ends, or the
// Service is gone of an earlier spec.existing, or of the pods of an operator which managed the backend before this one.
func (r *Reconciler) serviceGone(ctx context.Context, s *reconcileState, service *apiregistrationv1.APIService) (string, error) {
	switch {
	case s.identity().PointsToPods(service) && s.namespace.gone:
		return "no longer desired", nil
	case service.Spec.Service == nil, s.identity().PointsToPods(service), s.identity().PointsToTarget(service), s.identity().IsRepointed(service):
		return "", nil // what spec.existing names is read later, and what another manager wrote is theirs
	}
	present := lifecycle.RecordOwner(service, nil)
	found, err := r.readService(ctx, present.Target())
	if err != nil {
		return "", err
	}
	return found.missing, nil
}

// intents returns the versions that the stored status marks as retiring. They are retired
// even if the spec names them again, and then registered by the usual rules.
func (s *reconcileState) intents() []v1alpha1.APIServiceStatus {
	return slices.DeleteFunc(slices.Clone(s.storedStatus.APIServices), func(known v1alpha1.APIServiceStatus) bool {
		_, ok := manifests.VersionOf(known.Name)
		return !ok || !known.State.IsRetiring()
	})
}

// waitRetiring sets StaleAPIServicesRemoved to what the retirement waits for, and returns
// errWait.
func (s *reconcileState) waitRetiring(state string) error {
	var names []string
	for name, version := range s.apiServices {
		if version.State.IsRetiring() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	s.setCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, v1alpha1.ReasonRetiring,
		fmt.Sprintf("%s: %s; nothing else changes until this is done", strings.Join(names, ", "), state))
	return errWait
}

// retireVersions takes versions out of discovery: each is handed back, left to its owner, or
// deleted, one after the other; then all of them are confirmed. It returns what one of them waits
// for, or "".
func (r *Reconciler) retireVersions(ctx context.Context, s *reconcileState, names []string) (waits string, err error) {
	var written []*lifecycle.Version
	for _, name := range names {
		gv, _ := manifests.VersionOf(name)
		v := &lifecycle.Version{GV: gv, Identity: s.identity(), Retires: true, Known: sets.New[lifecycle.Need]()}
		d, err := r.advance(ctx, s, v)
		if d.State == lifecycle.Restoring {
			s.apiServices[name] = v1alpha1.APIServiceStatus{Name: name, State: v1alpha1.APIServiceRestoring, Message: s.apiServices[name].Message}
		}
		if err != nil || d.Waits != "" {
			return d.Waits, err
		}
		if d.Needs != "" || v.Live == nil {
			written = append(written, v)
		}
		delete(s.registered, name)
	}
	if err := r.confirmRetired(ctx, s, written); err != nil {
		return "", err
	}
	for _, v := range written {
		if d := r.next(v); d.Waits != "" {
			return d.Waits, nil
		}
	}
	for _, name := range names {
		delete(s.apiServices, name)
		s.history.streaks.Reset(stateKey{state: unregistered, name: name})
	}
	return "", nil
}

// confirmRetired observes whether every kube-apiserver follows what was written.
func (r *Reconciler) confirmRetired(ctx context.Context, s *reconcileState, written []*lifecycle.Version) error {
	var gone []schema.GroupVersion
	for _, v := range written {
		if v.Live == nil {
			gone = append(gone, v.GV)
		} else if err := r.observeVersion(ctx, s, v, lifecycle.NeedRouting); err != nil {
			return err
		}
	}
	discovery := ""
	if len(gone) > 0 {
		discovery = r.stillInDiscovery(ctx, s, gone)
	}
	for _, v := range written {
		v.Discovery = discovery
		v.Known.Insert(lifecycle.NeedDiscovery)
	}
	return nil
}

// stillRoutedIfDeployed is stillRouted for an APIService of another owner. Without pods
// of ours nothing can be sent to them.
func (r *Reconciler) stillRoutedIfDeployed(ctx context.Context, s *reconcileState, name string) (string, error) {
	if !s.namespace.usable() {
		return "", nil
	}
	deployed, err := r.isDeployed(ctx, s)
	if err != nil || !deployed {
		return "", err
	}
	return r.stillRouted(ctx, s, name), nil
}

// stillInDiscovery returns where one of the versions, whose APIServices are gone, is
// still in discovery, or "".
func (r *Reconciler) stillInDiscovery(ctx context.Context, s *reconcileState, gone []schema.GroupVersion) string {
	presence, err := r.Aggregator.Discovered(ctx, gone)
	var reason string
	if err != nil {
		klog.FromContext(ctx).Info("Cannot ask each kube-apiserver for its discovery, waiting instead", "delay", aggregator.DiscoveryDelay, "err", err)
		reason = "no longer registered; the kube-apiservers' own addresses cannot be read"
	} else {
		for _, gv := range gone {
			if addresses := presence.Listed[gv]; len(addresses) > 0 {
				return fmt.Sprintf("no longer registered, but %s is still in discovery of kube-apiserver %s",
					shortVersion(gv), strings.Join(addresses, ", "))
			}
		}
		if len(presence.Unreachable) == 0 {
			return ""
		}
		reason = "no longer registered; the discovery of kube-apiserver " + strings.Join(presence.Unreachable, ", ") + " cannot be read"
	}
	waits := ""
	for _, gv := range gone {
		if s.history.streaks.Set(stateKey{state: unregistered, name: apiServiceName(gv)}, true).Elapsed < aggregator.DiscoveryDelay {
			waits = fmt.Sprintf("%s, so this waits %s", reason, aggregator.DiscoveryDelay)
		}
	}
	return waits
}

// observe reads the APIServices around the cache: what is registered decides what may be
// done to pods.
func (r *Reconciler) observe(ctx context.Context, s *reconcileState) error {
	// Not by label: one without it that points to our pods is in discovery, too.
	var list apiregistrationv1.APIServiceList
	if err := r.APIReader.List(ctx, &list); err != nil {
		return fmt.Errorf("list APIServices: %w", err)
	}
	s.history.adoption.Follow(s.backend.Generation, s.reportedFailure(), s.now)
	s.registered = map[string]*apiregistrationv1.APIService{}
	s.others = map[string]*apiregistrationv1.APIService{}
	for i := range list.Items {
		switch service := &list.Items[i]; {
		case service.Name == manifests.CanaryAPIServiceName:
			s.canary = service
		case s.identity().Owns(service):
			s.registered[service.Name] = service
			if s.identity().PointsToPods(service) {
				s.history.streaks.Reset(stateKey{state: pointedAway, name: service.Name})
			}
		default:
			s.others[service.Name] = service
		}
	}
	if err := r.withdrawAuthorities(ctx, s); err != nil {
		return err
	}
	if s.canary == nil {
		return nil
	}
	left, err := r.adoptionChecker.Expire(ctx, s.canary, s.backend.Name, &s.history.adoption, s.now)
	if left > 0 {
		s.requeueWithin(left)
	}
	return err
}
