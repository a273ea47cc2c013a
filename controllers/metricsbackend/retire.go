// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
		gv, ok := versionOf(name)
		podsGone, err := r.podsGone(ctx, s, s.registered[name])
		if err != nil {
			return err
		}
		if !ok || slices.Contains(s.versions.desired, gv) && !podsGone || storedVersion(&s.storedStatus, name).State == v1alpha1.APIServiceRetiring {
			continue
		}
		if kept, err := r.keepForConsumers(ctx, s, gv); err != nil {
			return err
		} else if kept {
			continue
		}
		fresh = true
		s.setVersionState(gv, v1alpha1.APIServiceRetiring, "no longer desired")
	}
	if fresh {
		s.requeueNow()
		return s.waitRetiring("to be removed from discovery")
	}

	var gone []schema.GroupVersion
	for _, intent := range intents {
		gv, _ := versionOf(intent.Name)
		owner, why, err := r.retireAPIService(ctx, s, intent.Name)
		if err != nil {
			return err
		}
		switch owner {
		case ownerNone:
			delete(s.registered, intent.Name)
			gone = append(gone, gv)
		case ownerSelf:
			return s.waitRetiring("still exists: " + why)
		case ownerOther:
			// The new owner serves it, once every kube-apiserver has seen the change.
			delete(s.registered, intent.Name)
			why, err := r.stillRoutedIfDeployed(ctx, s, intent.Name)
			if err != nil {
				return err
			}
			if why != "" {
				return s.waitRetiring(why)
			}
			delete(s.apiServices, intent.Name)
		}
	}
	if len(gone) > 0 {
		if reason := r.stillInDiscovery(ctx, s, gone); reason != "" {
			return s.waitRetiring(reason)
		}
		for _, gv := range gone {
			delete(s.apiServices, apiServiceName(gv))
			s.history.streaks.Reset(stateKey{state: unregistered, name: apiServiceName(gv)})
		}
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
	case s.pointsToServing(service):
		return s.namespace.gone, nil
	case service.Labels[v1alpha1.LabelInstallation] == r.Namespace, !pointsToHolder(service):
		return false, nil
	}
	exists, ends, err := readNamespace(ctx, r.Live, service.Spec.Service.Namespace)
	return err == nil && (!exists || ends), err
}

// intents returns the versions that the stored status marks as retiring. They are retired
// even if the spec names them again, and then registered by the usual rules.
func (s *reconcileState) intents() []v1alpha1.APIServiceStatus {
	return slices.DeleteFunc(slices.Clone(s.storedStatus.APIServices), func(known v1alpha1.APIServiceStatus) bool {
		_, ok := versionOf(known.Name)
		return !ok || known.State != v1alpha1.APIServiceRetiring
	})
}

// waitRetiring sets StaleAPIServicesRemoved to what the retirement waits for, and returns
// errWait.
func (s *reconcileState) waitRetiring(state string) error {
	var names []string
	for name, version := range s.apiServices {
		if version.State == v1alpha1.APIServiceRetiring {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	s.setCondition(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, v1alpha1.ReasonRetiring,
		fmt.Sprintf("%s: %s; nothing else changes until this is done", strings.Join(names, ", "), state))
	return errWait
}

// owner is the owner of an APIService.
type owner int

const (
	ownerNone owner = iota
	ownerSelf
	ownerOther
)

// retireAPIService restores the previous owner of an APIService of ours if that still
// serves it, or else deletes it. It returns the owner after a live read, and why it is
// still ours.
func (r *Reconciler) retireAPIService(ctx context.Context, s *reconcileState, name string) (owner owner, why string, err error) {
	for deleted := false; ; deleted = true {
		var service apiregistrationv1.APIService
		err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &service)
		switch {
		case apierrors.IsNotFound(err):
			return ownerNone, "", nil
		case err != nil:
			return ownerSelf, "", fmt.Errorf("get APIService %s: %w", name, err)
		case !s.owns(&service):
			return ownerOther, "", nil
		case service.DeletionTimestamp == nil && s.isRepointed(&service):
			return ownerOther, "", r.disown(ctx, s, &service)
		case deleted || service.DeletionTimestamp != nil:
			return ownerSelf, "something holds it with a finalizer", nil
		}
		switch restored, waits, err := r.restorePrevious(ctx, s, &service); {
		case err != nil:
			return ownerSelf, "", err
		case waits != "":
			return ownerSelf, waits, nil
		case restored:
			return ownerOther, "", nil
		}
		klog.FromContext(ctx).Info("Deleting APIService", "apiService", name)
		err = r.Client.Delete(ctx, &service, client.Preconditions{UID: ptr.To(service.UID), ResourceVersion: ptr.To(service.ResourceVersion)})
		if err != nil && !apierrors.IsNotFound(err) {
			return ownerSelf, "", fmt.Errorf("delete APIService %s: %w", name, err)
		}
	}
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

// owns reports whether an APIService is this backend's: it has our label, or it lost it
// but points to our Service.
func (s *reconcileState) owns(service *apiregistrationv1.APIService) bool {
	holder := service.Labels[v1alpha1.LabelBackend]
	return holder == s.backend.Name || holder == "" && s.pointsToServing(service)
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
		if s.history.streaks.Observe(stateKey{state: unregistered, name: apiServiceName(gv)}, true).Elapsed < aggregator.DiscoveryDelay {
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
	if err := r.Live.List(ctx, &list); err != nil {
		return fmt.Errorf("list APIServices: %w", err)
	}
	s.history.adoption.Follow(s.backend.Generation, s.reportedFailure(), s.now)
	s.registered = map[string]*apiregistrationv1.APIService{}
	s.others, s.sharedGroups = map[string]*apiregistrationv1.APIService{}, sets.New[string]()
	for i := range list.Items {
		switch service := &list.Items[i]; {
		case service.Name == manifests.CanaryAPIServiceName:
			s.canary = service
		case s.owns(service):
			s.registered[service.Name] = service
			if s.pointsToServing(service) {
				s.history.streaks.Reset(stateKey{state: pointedAway, name: service.Name})
			}
		default:
			s.others[service.Name] = service
			if service.Spec.Service != nil && !pointsToHolder(service) {
				s.sharedGroups.Insert(service.Spec.Group)
			}
		}
	}
	return r.expireCanary(ctx, s)
}
