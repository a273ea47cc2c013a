// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/aggregator"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
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
		if v.PodsGone, err = r.podsGone(ctx, s, v.Live); err != nil {
			return err
		}
		d := r.next(v)
		if d.Needs == lifecycle.NeedConsumers {
			if err := r.observeVersion(ctx, s, v, d.Needs); err != nil {
				return err
			}
			d = r.next(v)
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
	s.setCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"only desired versions are in discovery")
	return nil
}

// podsGone reports whether an APIService points to pods of ours whose namespace is gone, or
// is being deleted with them: that of serving, or that of an operator which managed the
// backend before this one.
func (r *Reconciler) podsGone(ctx context.Context, s *reconcileState, service *apiregistrationv1.APIService) (bool, error) {
	switch {
	case s.identity().PointsToPods(service):
		return s.namespace.gone, nil
	case service.Labels[v1alpha1.LabelInstallation] == r.Namespace, !lifecycle.PointsToLabelled(service):
		return false, nil
	}
	exists, ends, err := r.readNamespace(ctx, service.Spec.Service.Namespace)
	return err == nil && (!exists || ends), err
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
		v := &lifecycle.Version{GV: gv, Identity: s.identity(), Retires: true}
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

// advance takes the steps of a version that is being retired, until it waits, or until only every
// kube-apiserver has to follow, which the decision needs.
func (r *Reconciler) advance(ctx context.Context, s *reconcileState, v *lifecycle.Version) (d lifecycle.Decision, err error) {
	if err := r.readAPIService(ctx, v); err != nil {
		return d, err
	}
	for {
		d = r.next(v)
		switch {
		case d.Needs == lifecycle.NeedDiscovery, d.Needs == lifecycle.NeedRouting, d.Waits != "", d.State == lifecycle.Gone:
			return d, nil
		case d.Needs != "":
			err = r.observeVersion(ctx, s, v, d.Needs)
		default:
			err = r.act(ctx, s, v, d)
		}
		if err != nil {
			return d, err
		}
	}
}

// readAPIService reads the APIService of a version.
func (r *Reconciler) readAPIService(ctx context.Context, v *lifecycle.Version) error {
	v.Live = &apiregistrationv1.APIService{}
	switch err := r.APIReader.Get(ctx, client.ObjectKey{Name: v.Name()}, v.Live); {
	case apierrors.IsNotFound(err):
		v.Live = nil
	case err != nil:
		return fmt.Errorf("get APIService %s: %w", v.Name(), err)
	}
	return nil
}

// observeVersion makes an observation that the decision about a version needs.
func (r *Reconciler) observeVersion(ctx context.Context, s *reconcileState, v *lifecycle.Version, need lifecycle.Need) error {
	switch need {
	case lifecycle.NeedConsumers:
		kept, err := r.keepForConsumers(ctx, s, v.GV)
		v.Consumers = &kept
		return err
	case lifecycle.NeedHolder:
		return r.observeHolder(ctx, v)
	case lifecycle.NeedReach:
		return r.observeReach(ctx, s, v)
	case lifecycle.NeedPreviousEndpoints:
		ready, err := r.previousReady(ctx, s, v)
		v.PreviousReady = &ready
		return err
	case lifecycle.NeedSuccessor:
		successor, err := r.successor(ctx, s, v)
		v.Successor = &successor
		return err
	case lifecycle.NeedPreviousOwner:
		v.Previous = r.observePreviousOwner(ctx, s, v)
	case lifecycle.NeedRouting:
		routing, err := r.stillRoutedIfDeployed(ctx, s, v.Name())
		v.Routing = &routing
		return err
	}
	return nil
}

// act does what was decided about a version, and reads its APIService again.
func (r *Reconciler) act(ctx context.Context, s *reconcileState, v *lifecycle.Version, d lifecycle.Decision) error {
	if d.Event != "" {
		klog.FromContext(ctx).Info("An APIService is not handed back", "apiService", v.Name(), "why", d.Note)
		r.Events.Eventf(s.backend, v.Live, corev1.EventTypeWarning, d.Event, "Retire", "%s", text.Truncate(d.Note, maxNote))
	}
	var err error
	switch d.Action {
	case lifecycle.Disown:
		err = r.disown(ctx, s, v.Live)
	case lifecycle.HandBack:
		err = r.handBack(ctx, s, v.Live)
		if apierrors.IsForbidden(err) {
			// Only another release of the operator may write this version. Any may be
			// deleted, and one that stays would block everything else.
			v.Refused = err
			return nil
		}
	case lifecycle.Delete:
		klog.FromContext(ctx).Info("Deleting APIService", "apiService", v.Name())
		s.history.streaks.Reset(stateKey{state: previousOwnerFailing, name: v.Name()})
		err = r.Client.Delete(ctx, v.Live, client.Preconditions{UID: ptr.To(v.Live.UID), ResourceVersion: ptr.To(v.Live.ResourceVersion)})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete APIService %s: %w", v.Name(), err)
		}
		v.Deleted = true
	}
	if err != nil {
		return err
	}
	return r.readAPIService(ctx, v)
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
		v.Discovery = &discovery
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
	for _, gv := range gone {
		if s.history.streaks.Set(stateKey{state: unregistered, name: apiServiceName(gv)}, true).Elapsed < aggregator.DiscoveryDelay {
			return fmt.Sprintf("%s, so this waits %s", reason, aggregator.DiscoveryDelay)
		}
	}
	return ""
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
	s.others, s.sharedGroups = map[string]*apiregistrationv1.APIService{}, sets.New[string]()
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
			if service.Spec.Service != nil && !lifecycle.PointsToLabelled(service) {
				s.sharedGroups.Insert(service.Spec.Group)
			}
		}
	}
	return r.expireCanary(ctx, s)
}
