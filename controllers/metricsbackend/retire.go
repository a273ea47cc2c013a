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
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// retire takes versions out of discovery: those that are registered by us and
// not desired, whether this binary knows them or not, and those of which a phase
// said so before. The intent is persisted before the first deletion, so that a
// restart goes on where this process ended.
func (r *Reconciler) retire(ctx context.Context, s *scope) error {
	intents := s.intents()
	for _, intent := range intents {
		// Never lost from the status before it is confirmed, whatever fails here.
		s.apiServices[intent.Name] = intent
	}
	if !s.observed {
		return nil
	}
	fresh := false
	for _, name := range s.registeredNames() {
		gv, ok := versionOf(name)
		// Without their namespace our pods are gone, wherever others may serve.
		lost := s.withoutNamespace && s.leadsToServing(s.registered[name])
		if !ok || s.wants(name) && !lost || s.persisted(name) == v1alpha1.APIServiceRetiring {
			continue
		}
		if kept, err := r.keepForConsumers(ctx, s, gv); err != nil {
			return err
		} else if kept {
			continue
		}
		fresh = true
		s.setState(gv, v1alpha1.APIServiceRetiring, "no longer desired")
	}
	if fresh {
		s.markRetiring("to be removed from discovery")
		s.again()
		return errWait
	}

	var gone []schema.GroupVersion
	for _, intent := range intents {
		gv, _ := versionOf(intent.Name)
		owner, why, err := r.release(ctx, s, intent.Name)
		if err != nil {
			return err
		}
		switch owner {
		case nobody:
			delete(s.registered, intent.Name)
			gone = append(gone, gv)
		case us:
			s.markRetiring("still exists: " + why)
			return errWait
		case someoneElse:
			// Whoever has it answers for it, once every kube-apiserver knows.
			delete(s.registered, intent.Name)
			held, err := r.leadsToUsStill(ctx, s, intent.Name)
			if err != nil {
				return err
			}
			if held != "" {
				s.markRetiring(held)
				return errWait
			}
			delete(s.apiServices, intent.Name)
		}
	}
	if len(gone) > 0 {
		if lingers := r.lingers(ctx, s, gone); lingers != "" {
			s.markRetiring(lingers)
			return errWait
		}
		for _, gv := range gone {
			delete(s.apiServices, apiServiceName(gv))
			s.history.streaks.Reset(stateKey{state: unregistered, name: apiServiceName(gv)})
		}
	}
	if len(s.kept) > 0 {
		return s.markKept()
	}
	s.mark(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionTrue, v1alpha1.ReasonSucceeded,
		"only desired versions are in discovery")
	return nil
}

// intents are the versions that were marked as retiring in the persisted status.
// They are finished even if the spec names the version again meanwhile: it is
// registered anew afterwards, by the same rules as always.
func (s *scope) intents() []v1alpha1.APIServiceStatus {
	return slices.DeleteFunc(slices.Clone(s.before.APIServices), func(known v1alpha1.APIServiceStatus) bool {
		_, ok := versionOf(known.Name)
		return !ok || known.State != v1alpha1.APIServiceRetiring
	})
}

func (s *scope) markRetiring(state string) {
	var names []string
	for name, version := range s.apiServices {
		if version.State == v1alpha1.APIServiceRetiring {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	s.mark(v1alpha1.ConditionStaleAPIServicesRemoved, metav1.ConditionFalse, v1alpha1.ReasonRetiring,
		fmt.Sprintf("%s: %s; nothing else changes until this is done", strings.Join(names, ", "), state))
}

// owner is whose an APIService is.
type owner int

const (
	nobody owner = iota
	us
	someoneElse
)

// release lets go of the APIService if it is ours: it goes back to whom it was
// taken from, if they still answer for it, or it is deleted. It returns whose one
// of this name is then, by a live read, and why it is still ours.
func (r *Reconciler) release(ctx context.Context, s *scope, name string) (whose owner, why string, err error) {
	for deleted := false; ; deleted = true {
		var service apiregistrationv1.APIService
		err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &service)
		switch {
		case apierrors.IsNotFound(err):
			return nobody, "", nil
		case err != nil:
			return us, "", fmt.Errorf("get APIService %s: %w", name, err)
		case !s.owns(&service):
			return someoneElse, "", nil
		case service.DeletionTimestamp == nil && s.isTheirs(&service):
			return someoneElse, "", r.giveUp(ctx, s, &service)
		case deleted || service.DeletionTimestamp != nil:
			return us, "something holds it with a finalizer", nil
		}
		switch handed, waits, err := r.handBack(ctx, s, &service); {
		case err != nil:
			return us, "", err
		case waits != "":
			return us, waits, nil
		case handed:
			return someoneElse, "", nil
		}
		klog.FromContext(ctx).Info("Deleting APIService", "apiService", name)
		err = r.Client.Delete(ctx, &service, client.Preconditions{UID: ptr.To(service.UID), ResourceVersion: ptr.To(service.ResourceVersion)})
		if err != nil && !apierrors.IsNotFound(err) {
			return us, "", fmt.Errorf("delete APIService %s: %w", name, err)
		}
	}
}

// leadsToUsStill is stillLeads, for an APIService that someone else has now; while
// we have no pods nothing can be sent to them.
func (r *Reconciler) leadsToUsStill(ctx context.Context, s *scope, name string) (string, error) {
	if s.unmanaged || s.withoutNamespace {
		return "", nil
	}
	deployed, err := r.isDeployed(ctx, s)
	if err != nil || !deployed {
		return "", err
	}
	return r.stillLeads(ctx, s, name), nil
}

// owns tells whether an APIService is this backend's: it has our label, or lost it
// while it still leads to our Service, and so is in discovery at our pods' expense.
func (s *scope) owns(service *apiregistrationv1.APIService) bool {
	holder := service.Labels[v1alpha1.LabelBackend]
	return holder == s.backend.Name || holder == "" && s.leadsToServing(service)
}

// lingers tells where one of the versions, whose APIServices are gone, still is
// in discovery; empty when they are nowhere.
func (r *Reconciler) lingers(ctx context.Context, s *scope, gone []schema.GroupVersion) string {
	presence, err := r.Aggregator.Discovered(ctx, gone)
	var reason string
	if err != nil {
		klog.FromContext(ctx).Info("Cannot ask each kube-apiserver for its discovery, waiting instead", "soak", discoverySoak, "err", err)
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
		if s.history.streaks.Observe(stateKey{state: unregistered, name: apiServiceName(gv)}, true).Elapsed < discoverySoak {
			return fmt.Sprintf("%s, so this waits %s", reason, discoverySoak)
		}
	}
	return ""
}

// versionOf reads the version from an APIService's name, VERSION.GROUP.
func versionOf(name string) (schema.GroupVersion, bool) {
	version, group, ok := strings.Cut(name, ".")
	return schema.GroupVersion{Group: group, Version: version}, ok
}
